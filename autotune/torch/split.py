"""A graph cut into few, large pieces. In: nodes in order, and which of them have no operator here.
Out: pieces in an order in which they can run, ours and PyTorch's by turns.

A piece is a level: a node is on the level of the deepest one that it reads, one further where that
is of the other kind. Levels cannot depend on one another in a circle, and no split has fewer turns
along its longest chain. Random numbers are drawn in the order in which eager draws them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import fx

_DRAWING = ("dropout_p", "train", "training")
"""Arguments of operators that draw nothing where one of them is 0 or False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPiece:
    """Nodes in order, the nodes outside that they read, and those of them that others read."""

    native: bool
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def split(
    nodes: Sequence[fx.Node],
    refused: Collection[fx.Node],
    results: Collection[fx.Node],
    known: Collection[fx.Node] = (),
) -> list[GraphPiece]:
    """`refused`: nodes that PyTorch runs; `results`: nodes whose values are asked for; `known`:
    nodes whose values are the same in every run, which every piece has by itself. What other nodes
    read besides (sizes, what is left out) is no output of a piece."""
    levels: dict[fx.Node, int] = {}
    drawn = -1
    for node in nodes:
        # Levels of ours are even, those of PyTorch odd.
        level = -1 if node in refused else 0
        if node in refused and draws(node):
            level = drawn
        for read in node.all_input_nodes:
            if read in levels:
                level = max(level, levels[read] + (levels[read] - level) % 2)
        levels[node] = level
        drawn = level if node in refused and draws(node) else drawn
    return [
        _piece([n for n in nodes if levels[n] == level], level % 2 == 0, results, known, levels)
        for level in sorted(set(levels.values()))
    ]


def draws(node: fx.Node) -> bool:
    """Whether a node draws random numbers: whether it may, and is not told to drop nothing, as
    attention is in evaluation."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name in _DRAWING:
            default = argument.default_value if argument.has_default_value() else None
            given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, default)
            if isinstance(given, bool | int | float) and not given:
                return False
    return True


def _piece(
    nodes: Sequence[fx.Node],
    native: bool,
    results: Collection[fx.Node],
    known: Collection[fx.Node],
    every: Collection[fx.Node],
) -> GraphPiece:
    inside = set(nodes)
    inputs = dict.fromkeys(
        read
        for node in nodes
        for read in node.all_input_nodes
        if read not in inside and read not in known
    )
    others = set(every) - inside
    outputs = [n for n in nodes if n in results or any(user in others for user in n.users)]
    return GraphPiece(
        native=native, nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs)
    )
