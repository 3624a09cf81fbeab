"""Drop what changes nothing, merge runs of views, and replace costly scalar arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import COMMUTATIVE, Rewriter, ints, kind_of, rewritten
from autotune.shapes import broadcast_shapes, factor_groups, only_moves_units


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveIdentities:
    """copy(x), x * 1, x + 0, reshape to x's shape, scatter of no updates into x -> x;
    transpose(transpose(x)) -> one transpose, also around a reshape that merges dimensions;
    reshape(reshape(x)) -> one reshape; x / s -> x * (1/s); x ** 2 -> x * x; an expand whose reader
    broadcasts anyway, what a concat takes from tensors without elements -> nothing."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _simpler)


def _simpler(new: Rewriter, node: Node) -> str | None:
    """A cheaper value equal to the node's output, if there is one."""
    same = _same_as(new, node)
    if same is not None:
        return same
    if node.op == "transpose":
        return _merged_transpose(new, node)
    if node.op == "reshape":
        return _merged_reshape(new, node)
    if node.op in ("div", "pow"):
        return _strength_reduced(new, node)
    if node.op == "concat":
        return _without_nothing(new, node)
    return _without_expands(new, node) if kind_of(node.op) == "elementwise" else None


def _same_as(new: Rewriter, node: Node) -> str | None:
    """The input that the node's output equals, if there is one."""
    inputs = new.inputs(node)
    type_ = new.graph.types[node.output]
    if node.op == "copy":
        return inputs[0]
    if node.op in ("reshape", "expand", "slice", "concat", "transpose", "pad"):
        moved = node.op == "transpose" and node.attributes["perm"] != tuple(
            range(len(type_.shape))
        )
        # A pad may cut as much as it fills up.
        still = (0,) * (2 * len(type_.shape))
        shifted = node.op == "pad" and node.attributes["pads"] != still
        same = len(inputs) == 1 and not (moved or shifted) and new.types[inputs[0]] == type_
        return inputs[0] if same else None
    if node.op == "scatter":
        unchanged = not new.types[inputs[2]].size and new.types[inputs[0]] == type_
        return inputs[0] if unchanged else None
    if node.op == f"to_{type_.dtype}" and new.types[inputs[0]] == type_:
        return inputs[0]
    neutral = {"mul": 1, "div": 1, "pow": 1, "add": 0, "sub": 0}.get(node.op)
    if neutral is None:
        return None
    for kept, other in ((0, 1), (1, 0)) if node.op in COMMUTATIVE else ((0, 1),):
        known = new.known(inputs[other])
        if (
            known is not None
            and new.types[inputs[kept]] == type_
            and bool((known == neutral).all())
        ):
            return inputs[kept]
    return None


def _merged_transpose(new: Rewriter, node: Node) -> str | None:
    (value,) = new.inputs(node)
    shape, perm = new.graph.types[node.output].shape, ints(node, "perm")
    if (source := new.producer(value, "transpose")) is not None:
        first = ints(source, "perm")
        value, perm = source.inputs[0], tuple(first[p] for p in perm)
    if perm == tuple(range(len(perm))):
        return value
    if only_moves_units(new.shape(value), perm):
        return new.emit("reshape", [value], node, shape=shape)
    if source is not None:
        return new.emit("transpose", [value], node, perm=perm)
    return _around_merging(new, node)


def _around_merging(new: Rewriter, node: Node) -> str | None:
    """One transpose ahead of a reshape in place of two around it, where every dimension between
    them is a product of dimensions before: blocks of depth that become space, and the end of a
    transposed convolution, are moved next to their neighbours, merged, and moved to the front."""
    merging = new.producer(new.inputs(node)[0], "reshape")
    first = None if merging is None else new.producer(merging.inputs[0], "transpose")
    if merging is None or first is None or not new.used_once(merging.output):
        return None
    before, after = new.shape(first.output), new.shape(merging.output)
    if not new.used_once(first.output) or math.prod(before) == 0:
        return None
    groups = factor_groups(before, after)
    if any(len(outs) > 1 for _, outs in groups):
        return None
    parts = {outs[0]: ins for ins, outs in groups}
    wanted = [d for out in ints(node, "perm") for d in parts.get(out, ())]
    units = [d for d in range(len(before)) if d not in wanted]
    perm = tuple(ints(first, "perm")[d] for d in (*units, *wanted))
    moved = new.emit("transpose", first.inputs, node, perm=perm)
    return new.emit("reshape", [moved], node, shape=new.graph.types[node.output].shape)


def _merged_reshape(new: Rewriter, node: Node) -> str | None:
    source = new.producer(new.inputs(node)[0], "reshape")
    if source is None:
        return None
    shape = ints(node, "shape")
    if new.shape(source.inputs[0]) == shape:
        return source.inputs[0]
    return new.emit("reshape", [source.inputs[0]], node, shape=shape)


def _without_nothing(new: Rewriter, node: Node) -> str | None:
    inputs = new.inputs(node)
    parts = [i for i in inputs if new.types[i].size]
    if len(parts) in (0, len(inputs)):
        return None
    return parts[0] if len(parts) == 1 else new.emit("concat", parts, node, **node.attributes)


def _strength_reduced(new: Rewriter, node: Node) -> str | None:
    value, operand = new.inputs(node)
    known = new.known(operand)
    if known is None or known.size != 1 or not new.types[value].dtype.startswith("float"):
        return None
    number = float(known.reshape(()))
    if node.op == "pow":
        return new.emit("mul", [value, value], node) if number == 2.0 else None
    inverse = np.asarray(1.0 / number if number else math.inf, dtype=known.dtype)
    if number == 0.0 or not np.isfinite(inverse):
        return None
    exact = math.frexp(number)[0] == 0.5
    if not exact and (new.types[value].size == 1 or _is_rounded(new, node)):
        return None
    return new.emit("mul", [value, new.constant(inverse.reshape(known.shape), operand)], node)


def _is_rounded(new: Rewriter, node: Node) -> bool:
    """Whether a quotient is rounded to a whole number, which beside ties is that of the quotient
    itself only."""
    readers = [n for n in new.graph.nodes if node.output in n.inputs]
    return any(n.op == "round" for n in readers)


def _without_expands(new: Rewriter, node: Node) -> str | None:
    inputs = list(new.inputs(node))
    shape = new.graph.types[node.output].shape
    if node.op == "expand" or len(inputs) < 2:
        return None
    for position, value in enumerate(inputs):
        source = new.producer(value, "expand")
        if source is None:
            continue
        candidate = [*inputs[:position], source.inputs[0], *inputs[position + 1 :]]
        if broadcast_shapes([new.shape(i) for i in candidate]) == shape:
            inputs = candidate
    if tuple(inputs) == new.inputs(node):
        return None
    return new.emit(node.op, inputs, node, **node.attributes)
