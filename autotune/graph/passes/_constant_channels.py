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
from autotune.graph.passes._dimensions import any_order, axes_of
from autotune.graph.rewriter import ints, kind_of
from autotune.ops import OPS
from autotune.sizes import any_size, is_size
from autotune.types import Array, TensorType

_BYTES = ("int8", "uint8")
_INTEGERS = (*_BYTES, "int16", "int32", "int64", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """What is known of each channel of a value."""

    constant: Array
    """bool, one for each."""
    numbers: Array
    """Where it is constant: its number."""


def sums_of(graph: Graph, node: Node) -> str:
    """Whether results of a contraction of bytes with constants are sums of `all` channels of input
    0, or each of its `own` alone; empty of other nodes."""
    weights = graph.constants.get(node.inputs[1]) if node.op in ("conv2d", "matmul") else None
    if weights is None or any(graph.types[i].dtype not in _BYTES for i in node.inputs):
        return ""
    attrs, channels = node.attributes, channels_of(graph.types[node.inputs[0]])
    if attrs.get("groups", 1) != 1:
        return "own" if channels == attrs["groups"] == weights.shape[-1] else ""
    turned = attrs.get("transpose_a") or attrs.get("transpose_b")
    return "" if turned or (node.op == "matmul" and weights.ndim != 2) else "all"


def filters_of(graph: Graph, node: Node) -> tuple[Array, Array]:
    """A contraction's weights, [channels, results]: whether any is other than zero, their sum."""
    weights = graph.constants[node.inputs[1]]
    taps = weights.reshape(-1, *weights.shape[-2:])
    met, total = (taps != 0).any(axis=0), taps.sum(axis=0, dtype=np.int64)
    own = np.eye(weights.shape[-1], dtype=np.int64) if sums_of(graph, node) == "own" else 1
    return met & (np.asarray(own) > 0), total * own


def is_by_channel(graph: Graph, node: Node) -> bool:
    """Whether each channel of the result is made of the same channel of what it reads alone."""
    kind = graph.types[node.output]
    channels = channels_of(kind)
    if any_size(kind.shape) or not channels:
        return False
    if kind_of(node.op) == "elementwise":
        return any_order(node)
    if channels_of(graph.types[node.inputs[0]]) != channels:
        return False
    if node.op == "pad":
        pads = ints(node, "pads")
        return pads[len(pads) // 2 - 1] == pads[-1] == 0
    if node.op.startswith("reduce_"):
        rank = len(graph.types[node.inputs[0]].shape)
        return rank - 1 not in axes_of(node, rank)
    return node.op == "reshape" or sums_of(graph, node) == "own"


def channels_of(kind: TensorType) -> int:
    """How many a value has; 0 of a single number."""
    last = kind.shape[-1] if kind.shape else 0
    return 0 if any_size((last,)) else int(last)


def certain(node: Node, data: Channels) -> Array:
    """Which channels of its input a contraction sees one number of: zeros beside the image come
    between others."""
    padded = node.op == "conv2d" and any(ints(node, "pads"))
    return data.constant & (data.numbers == 0) if padded else data.constant


def constant_channels(graph: Graph) -> Mapping[str, Channels]:
    """Channels of the values that have constant ones."""
    out: dict[str, Channels] = {}
    for node in graph.nodes:
        kind = graph.types[node.output]
        if kind.dtype not in _INTEGERS or any_size(kind.shape) or not channels_of(kind):
            continue
        found: Channels | None = None
        if sums_of(graph, node):
            found = _of_contraction(graph, node, out.get(node.inputs[0]))
        elif is_by_channel(graph, node) and any(i in out for i in node.inputs):
            found = _of_others(graph, node, out)
        if found is not None and found.constant.any():
            out[node.output] = found
    return out


def _of_contraction(graph: Graph, node: Node, data: Channels | None) -> Channels:
    met, total = filters_of(graph, node)
    if data is None:
        return Channels(
            constant=np.asarray(~met.any(axis=0)), numbers=np.zeros(met.shape[1], np.int64)
        )
    known = certain(node, data)
    numbers = np.where(known, data.numbers, 0) @ total
    return Channels(constant=np.asarray(~met[~known].any(axis=0)), numbers=numbers)


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
    if array is not None:
        return array if array.size == 1 or array.shape[-1:] == (array.size,) else None
    made = next((n for n in graph.nodes if n.output == name and n.op == "scalar"), None)
    if made is None or is_size(made.attributes["value"]):
        return None
    return np.asarray(made.attributes["value"], str(made.attributes["dtype"]))
