"""Channel shuffles move to where they cost less, or vanish.

In: a graph with channels last. Out: the same results. A shuffle is channels seen as [groups, each]
and transposed. One that a convolution can undo by its weights is gone; one before a depthwise
convolution with strides comes behind it, where the image is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, ints, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PushShuffles:
    """conv(shuffle(x), W) -> conv(x, W with its input channels in x's order);
    depthwise(shuffle(x), W) -> shuffle(depthwise(x, W in x's order)), where rows or columns are
    skipped; elementwise nodes that read nothing but such a result and constants go ahead of the
    shuffle too, to run in the convolution's kernel."""

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        pushed: set[str] = set()
        for node in graph.nodes:
            value = None
            if node.op == "conv2d":
                value = _convolution(new, node, pushed)
            elif kind_of(node.op) == "elementwise":
                value = _elementwise(new, node, pushed)
            if value is None:
                new.keep(node)
            else:
                new.replace(node.output, value)
        return new.finish()


@dataclass(frozen=True, slots=True)
class _Shuffle:
    """Channel p of the result is channel order[p] of `base`."""

    base: str
    groups: int
    each: int

    @property
    def order(self) -> list[int]:
        return [p % self.groups * self.each + p // self.groups for p in range(self.channels)]

    @property
    def channels(self) -> int:
        return self.groups * self.each


def _shuffle(new: Rewriter, value: str) -> _Shuffle | None:
    """The shuffle that computes a value: reshape, transpose of the last two, reshape back."""
    chain: list[Node] = []
    for op in ("reshape", "transpose", "reshape"):
        node = new.producer(value)
        if node is None or node.op != op:
            return None
        chain.append(node)
        value = node.inputs[0]
    shape, split = new.shape(value), new.shape(chain[2].output)
    rank = len(split)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    if len(shape) != rank - 1 or shape[:-1] != split[:-2]:
        return None
    if ints(chain[1], "perm") != swapped or new.shape(chain[0].output) != shape:
        return None
    return _Shuffle(value, split[-2], split[-1])


def _shuffled(new: Rewriter, value: str, shuffle: _Shuffle, like: Node) -> str:
    shape = new.shape(value)
    split = new.emit("reshape", [value], like, shape=(*shape[:-1], shuffle.groups, shuffle.each))
    perm = (*range(len(shape) - 1), len(shape), len(shape) - 1)
    return new.emit(
        "reshape", [new.emit("transpose", [split], like, perm=perm)], like, shape=shape
    )


def _convolution(new: Rewriter, node: Node, pushed: set[str]) -> str | None:
    image, weights = new.inputs(node)
    shuffle, array = _shuffle(new, image), new.constants.get(weights)
    if shuffle is None or array is None:
        return None
    back = np.argsort(shuffle.order)
    attrs = node.attributes
    if attrs.get("groups", 1) == 1:
        constant = new.constant(array[:, :, back], weights)
        return new.emit("conv2d", [shuffle.base, constant], node, **attrs)
    depthwise = array.shape[2:] == (1, shuffle.channels) == (1, attrs["groups"])
    if not depthwise or max(ints(node, "strides")) == 1:
        return None
    constant = new.constant(array[..., back], weights)
    value = new.emit("conv2d", [shuffle.base, constant], node, **attrs)
    value = _shuffled(new, value, shuffle, node)
    pushed.add(value)
    return value


def _elementwise(new: Rewriter, node: Node, pushed: set[str]) -> str | None:
    """The node ahead of a shuffle that was pushed, if its other operands are constants."""
    inputs = new.inputs(node)
    moved = [i for i in inputs if i in pushed]
    if len(moved) != 1 or not new.used_once(moved[0]) or node.op == "expand":
        return None
    shuffle = _shuffle(new, moved[0])
    if shuffle is None or new.graph.types[node.output].shape != new.shape(moved[0]):
        return None
    operands = _operands(new, inputs, moved[0], shuffle)
    if operands is None:
        return None
    value = new.emit(node.op, operands, node, **node.attributes)
    value = _shuffled(new, value, shuffle, node)
    pushed.add(value)
    return value


def _operands(
    new: Rewriter, inputs: Sequence[str], moved: str, shuffle: _Shuffle
) -> list[str] | None:
    """The operands in the order of channels before the shuffle; None where one is no constant."""
    out: list[str] = []
    for value in inputs:
        known = new.known(value)
        if value == moved:
            out.append(shuffle.base)
        elif known is None:
            return None
        elif known.ndim == 0 or known.shape[-1] == 1:
            out.append(value)
        else:
            out.append(new.constant(known[..., np.argsort(shuffle.order)], value))
    return out
