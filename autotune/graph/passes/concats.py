"""Concatenations in the form that placement makes free."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, kind_of, rewritten


@dataclass(frozen=True, slots=True, kw_only=True)
class NestConcats:
    """c = concat(a, b); d = concat(a, b, e) -> d = concat(c, e): a and b then lie in c, c in d,
    and nothing is copied (a value can lie in one concat's storage only)."""

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        seen: dict[tuple[object, tuple[str, ...]], str] = {}
        for node in graph.nodes:
            if node.op != "concat":
                new.keep(node)
                continue
            axis, inputs = node.attributes["axis"], new.inputs(node)
            prefix = next(
                (n for n in range(len(inputs) - 1, 1, -1) if (axis, inputs[:n]) in seen), 0
            )
            if prefix:
                operands = [seen[axis, inputs[:prefix]], *inputs[prefix:]]
                new.replace(node.output, new.emit("concat", operands, node, **node.attributes))
            else:
                new.keep(node)
            seen[axis, inputs] = new.new(node.output)
        return new.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOverConcat:
    """relu(concat(a, b)) -> concat(relu(a), relu(b)), where a and b are computed for this alone:
    each relu then runs inside the kernel that computes its operand. So does adding what is the
    same for all of the joined axis."""

    def run(self, graph: Graph) -> Graph:
        uses = Counter(i for node in graph.nodes for i in node.inputs)
        return rewritten(graph, lambda new, node: _split(new, node, uses))


def _split(new: Rewriter, node: Node, uses: Counter[str]) -> str | None:
    inputs = new.inputs(node)
    computed = [p for p, i in enumerate(inputs) if new.known(i) is None]
    if len(computed) != 1 or kind_of(node.op) != "elementwise":
        return None
    (position,) = computed
    concat = new.producer(inputs[position], "concat")
    if concat is None or node.op == "expand" or not new.used_once(concat.output):
        return None
    rank = len(new.shape(concat.output))
    places = rank - int(str(concat.attributes["axis"])) % rank
    alike = all(
        len(new.shape(i)) < places or new.shape(i)[-places] == 1
        for p, i in enumerate(inputs)
        if p != position
    )
    if not alike or not all(_fusible(new, i, uses) for i in concat.inputs):
        return None
    parts = [
        new.emit(
            node.op, [*inputs[:position], i, *inputs[position + 1 :]], node, **node.attributes
        )
        for i in concat.inputs
    ]
    return new.emit("concat", parts, concat, **concat.attributes)


def _fusible(new: Rewriter, value: str, uses: Counter[str]) -> bool:
    """Whether an elementwise node may meet the kernel that makes the value: at once, behind a
    reshape that comes after it then, or in each part of what is joined in turn."""
    source = new.producer(value)
    if source is None or uses[value] > 1 or not new.used_once(value):
        return False
    if source.op in ("reshape", "concat"):
        return all(_fusible(new, i, uses) for i in source.inputs)
    return kind_of(source.op) in ("contraction", "pool", "elementwise")
