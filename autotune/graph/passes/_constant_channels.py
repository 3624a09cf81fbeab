"""Channels that have one number wherever they are, whatever the inputs are: those of filters that
are all zero, and what is computed of them. In: a graph. Out: by value, its last dimension's.

Of integers alone: no product of theirs with zero is anything but zero. A number beside the image
is zero, so a filter that sees it makes no constant of another number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import ints, kind_of
from autotune.ops import OPS
from autotune.sizes import any_size
from autotune.types import Array, TensorType

_INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "bool")
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """What is known of each channel of a value."""

    constant: Array
    """bool, one for each."""
    numbers: Array
    """Where it is constant: its number."""


def is_product(graph: Graph, node: Node) -> bool:
    """Whether every result sums all channels of input 0, times constant integers."""
    if node.op not in ("conv2d", "matmul") or node.inputs[1] not in graph.constants:
        return False
    weights = graph.constants[node.inputs[1]]
    kinds = {graph.types[i].dtype for i in node.inputs} <= {"int8", "uint8"}
    if node.op == "matmul":
        turned = any(node.attributes.get(name) for name in ("transpose_a", "transpose_b"))
        return kinds and weights.ndim == 2 and not turned
    return kinds and node.attributes["groups"] == 1


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether it is a convolution of each channel with a filter of its own."""
    if node.op != "conv2d" or node.inputs[1] not in graph.constants:
        return False
    channels = channels_of(graph.types[node.inputs[0]])
    alike = channels == node.attributes["groups"] == channels_of(graph.types[node.output])
    return alike and {graph.types[i].dtype for i in node.inputs} <= {"int8", "uint8"}


def is_by_channel(graph: Graph, node: Node) -> bool:
    """Whether each channel of the result is made of the same channel of what it reads alone."""
    channels = channels_of(graph.types[node.output])
    if any_size(graph.types[node.output].shape) or not channels:
        return False
    if kind_of(node.op) == "elementwise":
        return node.op != "causal"  # which asks where a channel is
    if any(channels_of(graph.types[i]) != channels for i in node.inputs[:1]):
        return False
    if node.op == "pad":
        pads = ints(node, "pads")
        return pads[len(pads) // 2 - 1] == pads[-1] == 0
    if node.op in _REDUCTIONS:
        rank = len(graph.types[node.inputs[0]].shape)
        return all(axis % rank != rank - 1 for axis in ints(node, "axes"))
    return node.op == "reshape" or is_depthwise(graph, node)


def channels_of(kind: TensorType) -> int:
    """How many a value has; 0 of a single number."""
    last = kind.shape[-1] if kind.shape else 0
    return 0 if any_size((last,)) else int(last)


def is_padded(node: Node) -> bool:
    """Whether it reads zeros beside the image."""
    return node.op == "conv2d" and any(ints(node, "pads"))


def filters_of(graph: Graph, node: Node) -> Array:
    """A product's weights as int64 [what is summed of a channel, channels, results]."""
    weights = graph.constants[node.inputs[1]].astype(np.int64)
    return weights.reshape(-1, *weights.shape[-2:])


def constant_channels(graph: Graph) -> Mapping[str, Channels]:
    """Channels of the values that have constant ones."""
    out: dict[str, Channels] = {}
    for node in graph.nodes:
        kind = graph.types[node.output]
        if kind.dtype not in _INTEGERS or any_size(kind.shape) or not channels_of(kind):
            continue
        found: Channels | None
        if is_product(graph, node):
            found = _of_product(graph, node, out)
        elif is_depthwise(graph, node):
            found = _of_depthwise(graph, node, out)
        elif is_by_channel(graph, node) and any(i in out for i in node.inputs):
            found = _of_others(graph, node, out)
        else:
            continue
        if found is not None and found.constant.any():
            out[node.output] = found
    return out


def _input(graph: Graph, node: Node, known: Mapping[str, Channels]) -> Channels:
    """What is known of input 0, without numbers that zeros beside the image come between."""
    name = node.inputs[0]
    if name not in known:
        nothing = np.zeros(channels_of(graph.types[name]), np.int64)
        return Channels(constant=nothing > 0, numbers=nothing)
    now = known[name]
    zero = now.numbers == 0
    return Channels(
        constant=now.constant & zero if is_padded(node) else now.constant, numbers=now.numbers
    )


def _of_product(graph: Graph, node: Node, known: Mapping[str, Channels]) -> Channels:
    data, filters = _input(graph, node, known), filters_of(graph, node)
    met = (filters != 0).any(axis=0)
    numbers = np.where(data.constant, data.numbers, 0) @ filters.sum(axis=0)
    return Channels(constant=~met[~data.constant].any(axis=0), numbers=numbers)


def _of_depthwise(graph: Graph, node: Node, known: Mapping[str, Channels]) -> Channels:
    data = _input(graph, node, known)
    filters = filters_of(graph, node)[:, 0]
    numbers = np.where(data.constant, data.numbers, 0) * filters.sum(axis=0)
    return Channels(constant=data.constant | ~filters.any(axis=0), numbers=numbers)


def _of_others(graph: Graph, node: Node, known: Mapping[str, Channels]) -> Channels | None:
    """By the operator itself, of numbers in the place of channels."""
    channels = channels_of(graph.types[node.output])
    constant, arrays = np.ones(channels, np.bool_), []
    for name in node.inputs:
        kind = graph.types[name]
        if name in known:
            constant = constant & known[name].constant
            shape = (*(1 for _ in kind.shape[:-1]), channels)
            shape = shape if kind_of(node.op) == "elementwise" else kind.shape
            arrays.append(np.broadcast_to(known[name].numbers.astype(kind.dtype), shape))
        elif (array := _by_channel(graph, name)) is not None:
            arrays.append(array)
        else:
            return None
    with np.errstate(all="ignore"):
        found = np.asarray(OPS.get(node.op).reference(arrays, node.attributes))
    rows = found.reshape(-1, channels)
    constant = constant & (rows == rows[:1]).all(axis=0)
    return Channels(constant=constant, numbers=rows[0].astype(np.int64))


def _by_channel(graph: Graph, name: str) -> Array | None:
    """A known operand that is the same in all places."""
    array = graph.constants.get(name)
    if array is None:
        return scalars_of(graph).get(name)
    return array if array.size == 1 or array.shape[-1:] == (array.size,) else None


def scalars_of(graph: Graph) -> Mapping[str, Array]:
    """Numbers that nodes are, by name."""
    return {
        n.output: np.asarray(n.attributes["value"], str(n.attributes["dtype"]))
        for n in graph.nodes
        if n.op == "scalar" and not any_size((n.attributes["value"],))
    }
