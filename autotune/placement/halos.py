"""Zeros around a tensor: what its readers need, and what they could use.

In: a node and the types of its values. Out: (before, after) per dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.graph.ir import Node
from autotune.ops import OPS
from autotune.ops.conv import tiled_reach
from autotune.types import TensorType

Halo = tuple[tuple[int, int], ...]


def read_halo(node: Node, types: Mapping[str, TensorType], value: str) -> Halo:
    """The zeros around `value` that the node's expressions read."""
    halo: Halo = ((0, 0),) * len(types[value].shape)
    if OPS.get(node.op).kind not in ("contraction", "pool"):
        return halo
    computes = OPS.get(node.op).expression(
        [(i, types[i]) for i in node.inputs], (node.output, types[node.output]), node.attributes
    )
    for compute in computes:
        for name, pads in compute.pads:
            if name == value:
                halo = larger(halo, pads)
    return halo


def useful_halo(node: Node, types: Mapping[str, TensorType], value: str) -> Halo:
    """The zeros around `value` that tiled algorithms of the node could read."""
    if node.op != "conv2d" or node.inputs[0] != value:
        return ((0, 0),) * len(types[value].shape)
    return tiled_reach(types[value], types[node.inputs[1]], node.attributes)


def larger(a: Halo, b: Halo) -> Halo:
    """The larger of two on every side."""
    return tuple((max(p, r), max(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
