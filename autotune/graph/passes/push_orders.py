"""Orders of channels go into weights, or to where they cost less.

In: a graph with channels last. Out: the same results. Channels of another order are those of a
transpose whose dimensions become one: of channels seen as [groups, each] (a shuffle), or of an
image that is flattened. A contraction undoes an order by its weights, so that it is gone; one
before a depthwise convolution with strides comes behind it, where the image is smaller.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._dimensions import any_order
from autotune.graph.rewriter import Rewriter, ints, rewritten
from autotune.shapes import factor_groups
from autotune.sizes import any_size
from autotune.types import Array

LARGE_BYTES = 64 << 20
"""Bytes of weights whose permuted copy is worth its memory only for few columns."""
FEW_COLUMNS = 256
"""Moving the activations takes no more than one part in as many as the weights have columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOrders:
    """matmul(reordered(x), W) -> matmul(x, W with its rows in x's order), and convolutions alike;
    depthwise(reordered(x), W) -> reordered(depthwise(x, W in x's order)), where rows or columns
    are skipped; elementwise nodes that read nothing but such a result and constants go ahead of
    the order too, to run in the convolution's kernel. Large weights stay as they lie in their file
    where moving the activations takes next to no time beside them."""

    def run(self, graph: Graph) -> Graph:
        pushed: dict[str, _Reordered] = {}
        return rewritten(graph, lambda new, node: _instead(new, node, pushed))


@dataclass(frozen=True, slots=True)
class _Reordered:
    """Channel p of a value is channel order[p] of `base`, by a transpose of them as dimensions."""

    base: str
    parts: tuple[int, ...]
    perm: tuple[int, ...]

    @property
    def back(self) -> Array:
        """Where each channel of the base is."""
        places = np.arange(math.prod(self.parts)).reshape(self.parts)
        return np.argsort(places.transpose(self.perm).reshape(-1))


def _instead(new: Rewriter, node: Node, pushed: dict[str, _Reordered]) -> str | None:
    if node.op in ("conv2d", "matmul"):
        return _contraction(new, node, pushed)
    return _elementwise(new, node, pushed) if pushed and any_order(node) else None


def _reordered(new: Rewriter, value: str, like: Node) -> _Reordered | None:
    """The base whose channels a value has in another order, and that order."""
    merged, shape = new.producer(value, "reshape"), new.shape(value)
    transpose = new.producer(merged.inputs[0], "transpose") if merged else None
    if transpose is None or shape[-1:] in ((), (1,)) or math.prod(shape) == 0:
        return None
    source, perm = new.shape(transpose.inputs[0]), ints(transpose, "perm")
    dims, into = factor_groups(new.shape(transpose.output), shape)[-1]
    first = dims[0]
    moved = perm[:first] != tuple(range(first))
    if into != [len(shape) - 1] or moved or any_size(source[first:]):
        return None
    base, split = transpose.inputs[0], new.producer(transpose.inputs[0], "reshape")
    if split is not None and new.shape(split.inputs[0]) == shape:
        base = split.inputs[0]
    else:
        base = new.emit("reshape", [base], like, shape=shape)
    return _Reordered(base, source[first:], tuple(p - first for p in perm[first:]))


def _contraction(new: Rewriter, node: Node, pushed: dict[str, _Reordered]) -> str | None:
    data, weights = new.inputs(node)
    array, attrs = new.constants.get(weights), node.attributes
    order = None if array is None else _reordered(new, data, node)
    if array is None or order is None or attrs.get("transpose_b") or array.ndim not in (2, 4):
        return None
    channels, filters, groups = new.shape(data)[-1], array.shape[-1], attrs.get("groups", 1)
    if groups == 1:
        if array.nbytes >= LARGE_BYTES and filters >= FEW_COLUMNS:
            return None
        rows = new.constant(array[..., order.back, :], weights)
        return new.emit(node.op, [order.base, rows], node, **attrs)
    if not groups == channels == filters or max(ints(node, "strides")) == 1:
        return None
    constant = new.constant(array[..., order.back], weights)
    made = new.emit(node.op, [order.base, constant], node, **attrs)
    return _behind(new, made, order, node, pushed)


def _elementwise(new: Rewriter, node: Node, pushed: dict[str, _Reordered]) -> str | None:
    """The node ahead of an order that was pushed, if its other operands are constants."""
    inputs, shape = new.inputs(node), new.graph.types[node.output].shape
    moved = [i for i in inputs if i in pushed]
    if len(moved) != 1 or not new.used_once(moved[0]) or shape != new.shape(moved[0]):
        return None
    order, operands = pushed[moved[0]], []
    for value in inputs:
        known = new.known(value)
        if value == moved[0]:
            operands.append(order.base)
        elif known is None:
            return None
        elif known.ndim == 0 or known.shape[-1] == 1:
            operands.append(value)
        else:
            operands.append(new.constant(known[..., order.back], value))
    made = new.emit(node.op, operands, node, **node.attributes)
    return _behind(new, made, order, node, pushed)


def _behind(
    new: Rewriter, made: str, order: _Reordered, like: Node, pushed: dict[str, _Reordered]
) -> str:
    """What was made of an order's base, in that order."""
    shape, rank = new.shape(made), len(new.shape(made)) - 1
    split = new.emit("reshape", [made], like, shape=(*shape[:-1], *order.parts))
    perm = (*range(rank), *(rank + p for p in order.perm))
    turned = new.emit("transpose", [split], like, perm=perm)
    value = new.emit("reshape", [turned], like, shape=shape)
    pushed[value] = dataclasses.replace(order, base=made)
    return value
