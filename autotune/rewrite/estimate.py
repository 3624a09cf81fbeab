"""An estimate of a match's gain, before anything is built: the time of the operators that go
against that of those that come, each by the machine's roofline and none fused.

It is coarse and quick: what does less work or moves less passes, the rest is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.errors import ModelError
from autotune.graph.ir import Node
from autotune.machine import Machine
from autotune.machine.cpu import core_seconds
from autotune.ops import OPS
from autotune.rewrite.apply import build
from autotune.rewrite.attributes import normal
from autotune.rewrite.match import Finder, Match, inside
from autotune.types import Attr, Attrs, TensorType

_TILED_SHARE = 0.5
"""Share of direct code's time that dense windows without strides may take (Winograd)."""
_WORTH = 0.98
"""Share of the time before from which a match is worth a look."""
_LESS_WORK = 0.8
"""Share of the operations before from which one is that takes no more time by bytes alone: they
may come faster, or be asked for ahead, and then the operations decide."""


class MatchEstimate:
    """Seconds of operators by their types. `merges`: whether what becomes one operator is worth a
    look though it is as much work: where times are measured, these tell whether that is faster."""

    def __init__(self, machine: Machine, *, merges: bool = False) -> None:
        self.machine, self.merges = machine, merges

    def promises(self, match: Match, finder: Finder) -> bool:
        """Whether the right side should take less than what would go of the left one."""
        after_s, work_after = self._after(match, finder)
        before_s, work_before = self._before(match, finder)
        less = after_s <= before_s and work_after < _LESS_WORK * work_before
        merged = self.merges and len(match.roots) > 1 and after_s <= before_s
        return less or merged or after_s < _WORTH * before_s

    def _before(self, match: Match, finder: Finder) -> tuple[float, float]:
        """Seconds and operations of the covered nodes that nothing else reads."""
        covered = inside(match, finder)
        roots = {node.output for node in match.roots}
        total_s, work, gone = 0.0, 0.0, set(roots)
        types = finder.graph.types
        kept = {value for _, value in finder.graph.outputs}
        # A node goes where all of its readers do; they come after it.
        for value in sorted(covered, key=finder.place, reverse=True):
            readers = {n.output for n in finder.readers.get(value, [])}
            if value not in roots and (value in kept or not readers <= gone):
                continue
            gone.add(value)
            node: Node = finder.producers[value]
            inputs = [types[i] for i in node.inputs]
            each_s, flops = self._cost(node.op, inputs, types[value], node.attributes)
            each_s += self._copies(node, finder)
            total_s, work = total_s + each_s, work + flops
        return total_s, work

    def _after(self, match: Match, finder: Finder) -> tuple[float, float]:
        """Seconds and operations of the right side, but for what constants alone decide, and what
        the graph has already."""
        types = {n: finder.graph.types[v] for n, v in match.values.items()}
        known = {n for n, v in match.values.items() if finder.known(v)}
        there = dict(match.values)
        total_s = work = 0.0

        def emit(op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> str:
            nonlocal total_s, work
            name = f"%{len(types)}"
            operands = [types[i] for i in inputs]
            types[name] = OPS.get(op).infer(operands, attrs)
            same = self._same(op, inputs, attrs, there, finder)
            if known.issuperset(inputs):
                known.add(name)
            elif same is not None:
                there[name] = same
            else:
                each_s, flops = self._cost(op, operands, types[name], attrs)
                total_s, work = total_s + each_s, work + flops
            return name

        try:
            build(match.rewrite, match.rewrite.right, match.symbols, {n: n for n in types}, emit)
        except ModelError:
            return math.inf, math.inf
        return total_s, work

    def _copies(self, node: Node, finder: Finder) -> float:
        """Seconds to copy into a joined value what is not computed there: a model's inputs."""
        if node.op != "concat":
            return 0.0
        moved = 0.0
        for value in node.inputs:
            source = finder.producers.get(value)
            while source is not None and source.op == "reshape":
                source = finder.producers.get(source.inputs[0])
            moved += 0 if source is not None else 2.0 * finder.graph.types[value].nbytes
        return core_seconds(self.machine, 0.0, moved)

    def _same(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Attrs,
        there: Mapping[str, str],
        finder: Finder,
    ) -> str | None:
        """The value of the graph that an operator over values of the graph would make again."""
        if not inputs or not all(i in there for i in inputs):
            return None
        operands = tuple(there[i] for i in inputs)
        types = finder.graph.types
        wanted = normal(op, attrs, [types[o].shape for o in operands])
        for node in finder.readers.get(operands[0], []):
            shapes = [types[i].shape for i in node.inputs]
            alike = node.op == op and node.inputs == operands
            if alike and normal(op, node.attributes, shapes) == wanted:
                return node.output
        return None

    def _cost(
        self, op: str, inputs: Sequence[TensorType], output: TensorType, attrs: Attrs
    ) -> tuple[float, float]:
        """Seconds and operations."""
        moves = op == "transpose"  # other views are free
        if (OPS.get(op).kind == "view" and not moves) or not inputs:
            return 0.0, 0.0
        flops = 0.0 if moves else float(output.size)
        if op == "matmul":
            flops *= 2 * inputs[0].shape[-1]
        if op == "conv2d":
            flops *= 2 * math.prod(inputs[1].shape[:3])
            full = normal(op, attrs, [t.shape for t in inputs])
            dense = full["dilations"] == full["strides"] == (1, 1) and full["groups"] == 1
            if dense and max(inputs[1].shape[:2]) > 1:
                flops *= _TILED_SHARE
        if op == "resize" and attrs.get("mode") == "linear":
            flops *= 8
        moved = float(sum(t.nbytes for t in inputs) + output.nbytes)
        return core_seconds(self.machine, flops, moved), flops
