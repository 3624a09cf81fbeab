"""Products of bytes without channels that are the same number everywhere.

In: a graph with constant weights. Out: the same results, bit for bit. Training leaves filters that
are all zero (half of them in the visual wake words model of MLPerf Tiny); what is computed of such
a channel is known now, and what reads it gets it with its bias:

    x = f(conv(.., W)), x[.., c] = 3;  conv(x, V) + b
    ->  x' = f(conv(.., W without c));  conv(x', V without c) + (b + 3 * V[c])

Channels come in groups of `together`, which instructions multiply at once: as many stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._constant_channels import (
    Channels,
    channels_of,
    constant_channels,
    filters_of,
    is_by_channel,
    is_depthwise,
    is_padded,
    is_product,
)
from autotune.graph.rewriter import Rewriter, ints
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
        writer = _Writer(graph=graph, new=Rewriter(graph), known=known, kept=kept)
        for node in graph.nodes:
            writer.write(node)
        return writer.new.finish()


def _kept(graph: Graph, known: Mapping[str, Channels], together: int) -> dict[str, Array]:
    """By value that loses channels: places of those that stay. Values whose channels are the same
    lose the same ones."""
    group = _groups(graph)
    needed: dict[str, Array] = {}
    whole = {group[value] for _, value in graph.outputs if value in group}
    whole |= {group[name] for name, _ in graph.inputs if name in group}
    for node in graph.nodes:
        product, by_channel = is_product(graph, node), is_by_channel(graph, node)
        if not (product or by_channel) and node.output in group:
            whole.add(group[node.output])
        for place, name in enumerate(node.inputs):
            if name not in group or (by_channel and group[name] == group.get(node.output)):
                continue
            if product and place == 0:
                before = needed.get(group[name], np.zeros((), np.bool_))
                needed[group[name]] = before | _needed(graph, node, known)
            else:
                whole.add(group[name])
    out: dict[str, Array] = {}
    for name, root in group.items():
        if root in whole or root not in needed:
            continue
        places = _filled_up(needed[root], together)
        if len(places) < len(needed[root]):
            out[name] = places
    return out


def _groups(graph: Graph) -> dict[str, str]:
    """By computed value: one that stands for all whose channels are the same."""
    parent = {name: name for name in graph.types if name not in graph.constants}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for node in graph.nodes:
        if not is_by_channel(graph, node):
            continue
        channels = channels_of(graph.types[node.output])
        for name in node.inputs:
            if name in parent and channels_of(graph.types[name]) == channels:
                parent[root(name)] = root(node.output)
    return {name: root(name) for name in parent if channels_of(graph.types[name]) > 1}


def _needed(graph: Graph, node: Node, known: Mapping[str, Channels]) -> Array:
    """Which channels a product must read."""
    met = (filters_of(graph, node) != 0).any(axis=(0, 2))
    if (data := known.get(node.inputs[0])) is None:
        return np.asarray(met)
    foreseen = data.constant & (data.numbers == 0) if is_padded(node) else data.constant
    return np.asarray(met & ~foreseen)


def _filled_up(needed: Array, together: int) -> Array:
    """Places of needed channels, and of the first others that make whole groups of them."""
    wanted = max(-(-int(needed.sum()) // together), 1) * together
    more = np.flatnonzero(~needed)[: wanted - int(needed.sum())]
    return np.sort(np.concatenate([np.flatnonzero(needed), more]))


@dataclass(kw_only=True)
class _Writer:
    """The new graph, node by node."""

    graph: Graph
    new: Rewriter
    known: Mapping[str, Channels]
    kept: Mapping[str, Array]
    owed: dict[str, Array] = field(default_factory=dict)
    """By old sum: what a constant that is added to it next is to be more."""

    def write(self, node: Node) -> None:
        if is_product(self.graph, node):
            self._product(node)
        elif node.output in self.kept or any(i in self.owed for i in node.inputs):
            self._by_channel(node)
        else:
            self.new.keep(node)

    def _product(self, node: Node) -> None:
        """The filters that stay, of the channels that stay, and the sums of the others."""
        read, made = self.kept.get(node.inputs[0]), self.kept.get(node.output)
        if read is None and made is None:
            self.new.keep(node)
            return
        weights = self.graph.constants[node.inputs[1]]
        more = np.zeros(weights.shape[-1], np.int64)
        if read is not None:
            left_out = np.ones(weights.shape[-2], np.bool_)
            left_out[read] = False
            if (data := self.known.get(node.inputs[0])) is not None:
                numbers = np.where(left_out & data.constant, data.numbers, 0)
                more = numbers @ filters_of(self.graph, node).sum(axis=0)
            weights = weights[..., read, :]
        if made is not None:
            weights, more = weights[..., made], more[made]
        operands = (self.new.new(node.inputs[0]), self.new.constant(weights, node.inputs[1]))
        total = self.new.emit(node.op, operands, node, **node.attributes)
        if more.any():
            if self._is_added_to(node):
                self.owed[node.output] = more
            else:
                sums = self.new.constant(more.astype(np.int32), node.output)
                total = self.new.emit("add", (total, sums), node)
        self.new.replace(node.output, total)

    def _is_added_to(self, node: Node) -> bool:
        """Whether all that reads a sum adds a constant to each channel."""
        users = [n for n in self.graph.nodes if node.output in n.inputs]
        channels = channels_of(self.graph.types[node.output])
        constants = self.graph.constants
        return node.output not in {value for _, value in self.graph.outputs} and all(
            n.op == "add" and any(i in constants and constants[i].shape[-1:] == (channels,)
                                  for i in n.inputs)
            for n in users
        )  # fmt: skip

    def _by_channel(self, node: Node) -> None:
        """The same operator of the channels that stay."""
        places, inputs = self.kept.get(node.output), []
        owed = next((self.owed[i] for i in node.inputs if i in self.owed), None)
        channels = channels_of(self.graph.types[node.output])
        for name in node.inputs:
            array = self.graph.constants.get(name)
            if array is None or array.shape[-1:] != (channels,):
                inputs.append(self.new.new(name))
                continue
            array = array if places is None else array[..., places]
            array = array if owed is None else (array + owed).astype(array.dtype)
            inputs.append(self.new.constant(array, name))
        attrs = node.attributes
        if places is not None and is_depthwise(self.graph, node):
            attrs["groups"] = len(places)
        if places is not None and node.op in ("reshape", "expand"):
            attrs["shape"] = (*ints(node, "shape")[:-1], len(places))
        self.new.replace(node.output, self.new.emit(node.op, inputs, node, **attrs))
