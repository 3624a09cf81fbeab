"""Pointwise convolutions between transposes become products that read and write what lies there.

In: a graph whose transposes are as near to the outputs as they come. Out: the same results, up to
rounding. Filters times an image with its channels first is the image that is asked for, channels
first: neither is turned. Where only one side is, the transposes may meet others and stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._channels_first import channels_first, turned_back
from autotune.graph.passes.push_transposes import PushTransposes
from autotune.graph.passes.remove_identities import RemoveIdentities
from autotune.graph.rewriter import Rewriter, rewritten

LEAST_POINTS = 16
"""Points of an image from which on vectors along them are full."""

LEAST_DEPTH = 8
"""Channels of a group from which on it is a product; windows over fewer are scaled points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseProducts:
    """transpose(conv2d(transpose(x), w)) -> matmul(w, x), for windows of one point."""

    def run(self, graph: Graph) -> Graph:
        ends = turned_back(graph)
        found = rewritten(graph, lambda new, node: _product(new, node, ends), "conv2d")
        if len(found.nodes) == len(graph.nodes):
            return graph
        return RemoveIdentities().run(PushTransposes().run(found))


def _product(new: Rewriter, node: Node, ends: frozenset[str]) -> str | None:
    if node.output not in ends or not _is_pointwise(new, node):
        return None
    image, weights = new.inputs(node)
    base = channels_first(new, image)
    if base is None:
        return None
    shape = new.graph.types[node.output].shape
    batch, points, filters = shape[0], math.prod(shape[1:3]), shape[3]
    if points < LEAST_POINTS:
        return None
    weight, groups = new.constants[weights][0, 0], _groups(new, node)
    depth = len(weight)
    # Of each group's filters: a row of weights each.
    turned = weight.reshape(depth, groups, filters // groups).transpose(1, 2, 0)
    apart = (groups,) if groups > 1 else ()
    rows = new.constant(turned.reshape(*apart, filters // groups, depth), weights)
    flat = new.emit("reshape", [base], node, shape=(batch, *apart, depth, points))
    value = new.emit("matmul", [rows, flat], node)
    value = new.emit("reshape", [value], node, shape=(batch, filters, points))
    value = new.emit("transpose", [value], node, perm=(0, 2, 1))
    return new.emit("reshape", [value], node, shape=shape)


def _groups(new: Rewriter, node: Node) -> int:
    image, weights = new.inputs(node)
    return new.shape(image)[3] // new.shape(weights)[2]


def _is_pointwise(new: Rewriter, node: Node) -> bool:
    """Whether a convolution multiplies each point by one constant matrix."""
    image, weights = new.inputs(node)
    before, after = new.shape(image), new.graph.types[node.output].shape
    return (
        weights in new.constants
        and new.types[image].dtype == new.types[weights].dtype == "float32"
        and new.shape(weights)[:2] == (1, 1)
        and new.shape(weights)[2] >= LEAST_DEPTH
        and before[:3] == after[:3]
    )
