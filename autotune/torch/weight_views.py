"""Views of weights, as weights. In: a graph's nodes, and its weights. Out: what further nodes give
that is the weights' own memory (a transposed matrix, a part of one).

Where several pieces read one, each has it by itself: as a result of another piece it would be
copied in every run, and be no weight that can be packed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from autotune.torch.aliases import is_view


def weight_views(
    nodes: Sequence[fx.Node], weights: Mapping[fx.Node, torch.Tensor], asked: Collection[fx.Node]
) -> dict[fx.Node, torch.Tensor]:
    """`asked`: nodes whose values are results; who gets one may write to it."""
    found: dict[fx.Node, torch.Tensor] = {}
    for node in nodes:
        read = node.all_input_nodes
        if node in asked or not is_view(node) or not callable(node.target):
            continue
        if not all(n in weights or n in found for n in read):
            continue
        with torch.no_grad():
            made = node.target(*fx.node.map_arg(node.args, lambda n: _of(n, weights, found)))
        if isinstance(made, torch.Tensor):
            found[node] = made
    return found


def _of(
    node: fx.Node,
    weights: Mapping[fx.Node, torch.Tensor],
    found: Mapping[fx.Node, torch.Tensor],
) -> torch.Tensor:
    return found[node] if node in found else weights[node].detach()
