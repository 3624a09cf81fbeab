"""Normalisations that exporters spell out become one operator: layer_norm and rms_norm.

In: a graph after constant folding and sharing of common subexpressions. Out: the same results; a
row is read once, in one kernel, instead of once per step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._dimensions import axes_of
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.shapes import broadcast_shapes
from autotune.sizes import any_size


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeNorms:
    """(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + e) * s + b -> layer_norm(x, s, b), and
    x / sqrt(mean(x ** 2) + e) * s -> rms_norm(x, s), over the last dimensions of x."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _recognized)


def _recognized(new: Rewriter, node: Node) -> str | None:
    return _normalized(new, node) or _with_scale_or_bias(new, node)


def _normalized(new: Rewriter, node: Node) -> str | None:
    """A norm without scale, for the division that ends it."""
    if node.op not in ("div", "mul"):
        return None
    inputs = new.inputs(node)
    for value, other in (inputs, inputs[::-1]) if node.op == "mul" else (inputs,):
        root = _root(new, other, inverted=node.op == "mul")
        found = root and _variance(new, root)
        if found and found[0] == value:
            return _norm(new, node, *found)
    return None


def _norm(
    new: Rewriter, node: Node, value: str, axes: tuple[int, ...], epsilon: float
) -> str | None:
    """The norm of `value`, which is x itself or x - mean(x)."""
    type_ = new.types[value]
    first = len(type_.shape) - len(axes)
    if axes != tuple(range(first, len(type_.shape))) or new.graph.types[node.output] != type_:
        return None
    if any_size(type_.shape[first:]):
        return None  # its scale is a constant of as many ones
    ones = new.constant(np.ones(type_.shape[first:], type_.dtype), f"{node.output}.scale")
    x = _uncentred(new, value, axes)
    op = "rms_norm" if x is None else "layer_norm"
    return new.emit(op, [x or value, ones], node, axis=first, epsilon=epsilon)


def _root(new: Rewriter, value: str, inverted: bool) -> str | None:
    """v, of a value sqrt(v); or 1 / sqrt(v)."""
    if (root := new.producer(value, "rsqrt" if inverted else "sqrt")) is not None:
        return root.inputs[0]
    node = new.producer(value, "reciprocal", "div") if inverted else None
    if node is None:
        return None
    one = new.known(node.inputs[0]) if node.op == "div" else np.ones(())
    unit = one is not None and one.size == 1 and bool((one == 1).all())
    return _root(new, node.inputs[-1], inverted=False) if unit else None


def _variance(new: Rewriter, value: str) -> tuple[str, tuple[int, ...], float] | None:
    """(d, axes, epsilon) of a value mean(d * d) + epsilon that keeps its dimensions."""
    total = new.producer(value, "add")
    for mean, constant in (total.inputs, total.inputs[::-1]) if total is not None else ():
        known, averaged = new.known(constant), _mean(new, mean)
        square = new.producer(averaged[0], "mul") if averaged is not None else None
        if averaged is None or square is None or square.inputs[0] != square.inputs[1]:
            continue
        if known is not None and known.size == 1:
            return square.inputs[0], averaged[1], float(known.reshape(()))
    return None


def _uncentred(new: Rewriter, value: str, axes: tuple[int, ...]) -> str | None:
    """x, of a value x - mean(x) over these axes."""
    node = new.producer(value, "sub")
    same = node is not None and _mean(new, node.inputs[1]) == (node.inputs[0], axes)
    return node.inputs[0] if node is not None and same else None


def _mean(new: Rewriter, value: str) -> tuple[str, tuple[int, ...]] | None:
    """(x, axes) of a value mean(x) that keeps its dimensions."""
    node = new.producer(value, "reduce_mean")
    if node is None or not node.attributes["keepdims"]:
        return None
    (x,) = node.inputs
    return x, tuple(sorted(axes_of(node, len(new.shape(x)))))


def _with_scale_or_bias(new: Rewriter, node: Node) -> str | None:
    """norm(x) * s -> norm with scale s; layer_norm(x, s) + b -> layer_norm(x, s, b)."""
    if node.op not in ("mul", "add"):
        return None
    inputs = new.inputs(node)
    for value, operand in (inputs, inputs[::-1]):
        norm = new.producer(value, "layer_norm", "rms_norm")
        constant = new.constants.get(operand)
        if norm is None or constant is None:
            continue
        rows = new.shape(norm.inputs[1])
        plain = len(norm.inputs) == 2 and norm.inputs[1] in new.constants and bool(rows)
        if not plain or not new.used_once(value) or not _fits(constant.shape, rows):
            continue
        row = np.broadcast_to(constant.reshape(constant.shape[-len(rows) :]), rows)
        if node.op == "mul":
            scale = new.constants[norm.inputs[1]] * row
            operands = [norm.inputs[0], new.constant(scale, operand)]
        elif norm.op == "layer_norm":
            operands = [*norm.inputs, new.constant(np.ascontiguousarray(row), operand)]
        else:
            continue
        return new.emit(norm.op, operands, norm, **norm.attributes)
    return None


def _fits(shape: tuple[int, ...], rows: tuple[int, ...]) -> bool:
    """Whether a constant has one value for each element of a row, the same for all rows."""
    leading = shape[: -len(rows)]
    return (
        bool(shape)
        and all(e == 1 for e in leading)
        and broadcast_shapes((shape[len(leading) :], rows)) == rows
    )
