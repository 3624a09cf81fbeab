"""Products of bytes without channels that are the same number everywhere.

In: a graph with constant weights. Out: the same results, bit for bit. Training leaves filters that
are all zero (half of them in the visual wake words model of MLPerf Tiny); what is computed of such
a channel is known now, and what reads it gets it with its bias:

    x = f(conv(.., W)), x[.., c] = 3;  conv(x, V) + b
    ->  x' = f(conv(.., W without c));  conv(x', V without c) + (b + 3 * V[c])

Channels come in groups of `together`, which instructions multiply at once: as many stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._constant_channels import (
    Channels,
    certain,
    channels_of,
    constant_channels,
    filters_of,
    is_by_channel,
    sums_of,
)
from autotune.graph.rewriter import Rewriter, ints, rewritten
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConstantChannels:
    """conv2d(x, W) -> conv2d(x without channels that are constants, W without them) + theirs."""

    together: int = 16

    def run(self, graph: Graph) -> Graph:
        known = constant_channels(graph)
        kept = _kept(graph, known, self.together) if known else {}
        if not kept:
            return graph
        return rewritten(graph, _Writer(graph=graph, known=known, kept=kept).instead)


def _kept(graph: Graph, known: Mapping[str, Channels], together: int) -> dict[str, Array]:
    """By value that loses channels: places of those that stay."""
    needed = {
        name: np.zeros(channels_of(kind), np.bool_)
        for name, kind in graph.types.items()
        if name not in graph.constants and channels_of(kind) > 1
    }
    _need_all(needed, [name for name, _ in graph.inputs] + [value for _, value in graph.outputs])
    before = -1
    while before != (before := sum(int(places.sum()) for places in needed.values())):
        for node in reversed(graph.nodes):
            _spread(graph, node, known, needed)
    out: dict[str, Array] = {}
    for name, wanted in needed.items():
        places = _filled_up(wanted, together)
        if len(places) < len(wanted):
            out[name] = places
    return out


def _spread(
    graph: Graph, node: Node, known: Mapping[str, Channels], needed: Mapping[str, Array]
) -> None:
    """Channels that a node must read and make, given those of what it reads and makes. Values that
    it makes of the same channels of others have the same ones."""
    if is_by_channel(graph, node):
        channels = channels_of(graph.types[node.output])
        alike = [
            v for v in (*node.inputs, node.output) if v in needed and len(needed[v]) == channels
        ]
        wanted = np.any([needed[v] for v in alike], axis=0)
        for value in alike:
            needed[value][:] = wanted
        _need_all(needed, [v for v in node.inputs if v not in alike])
    elif sums_of(graph, node):
        data = node.inputs[0]
        met = filters_of(graph, node)[0].any(axis=1)
        if data in needed:
            needed[data][:] |= met & ~certain(node, known[data]) if data in known else met
    else:
        _need_all(needed, (*node.inputs, node.output))


def _need_all(needed: Mapping[str, Array], values: Iterable[str]) -> None:
    for value in values:
        if value in needed:
            needed[value][:] = True


def _filled_up(needed: Array, together: int) -> Array:
    """Places of needed channels, and of the first others that make whole groups of them."""
    wanted = max(-(-int(needed.sum()) // together), 1) * together
    more = np.flatnonzero(~needed)[: wanted - int(needed.sum())]
    return np.sort(np.concatenate([np.flatnonzero(needed), more]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """The new graph, node by node."""

    graph: Graph
    known: Mapping[str, Channels]
    kept: Mapping[str, Array]

    def instead(self, new: Rewriter, node: Node) -> str | None:
        if sums_of(self.graph, node) == "all":
            return self._product(new, node)
        return self._by_channel(new, node) if node.output in self.kept else None

    def _product(self, new: Rewriter, node: Node) -> str | None:
        """The filters that stay, of the channels that stay, and the sums of the others."""
        data, name = node.inputs
        read, made = self.kept.get(data), self.kept.get(node.output)
        weights = self.graph.constants[name]
        more = np.zeros(weights.shape[-1], np.int64)
        if read is None and made is None:
            return None
        if read is not None and data in self.known:
            numbers = np.where(self.known[data].constant, self.known[data].numbers, 0)
            numbers[read] = 0
            more = numbers @ filters_of(self.graph, node)[1]
        weights = weights if read is None else weights[..., read, :]
        if made is not None:
            weights, more = weights[..., made], more[made]
        operands = (new.new(data), new.constant(weights, name))
        total = new.emit(node.op, operands, node, **node.attributes)
        if not more.any():
            return total
        sums = new.constant(more.astype(np.int32), node.output)
        return new.emit("add", (total, sums), node)

    def _by_channel(self, new: Rewriter, node: Node) -> str:
        """The same operator of the channels that stay."""
        places, inputs, attrs = self.kept[node.output], [], node.attributes
        channels = channels_of(self.graph.types[node.output])
        for name in node.inputs:
            array = self.graph.constants.get(name)
            if array is None or array.shape[-1:] != (channels,):
                inputs.append(new.new(name))
            else:
                inputs.append(new.constant(array[..., places], name))
        if sums_of(self.graph, node) == "own":
            attrs["groups"] = len(places)
        if node.op in ("reshape", "expand"):
            attrs["shape"] = (*ints(node, "shape")[:-1], len(places))
        return new.emit(node.op, inputs, node, **attrs)
