"""Depthwise convolutions between transposes read and write planes as they lie.

In: a graph whose transposes are as near to the outputs as they come. Out: the same results, up to
rounding. Turning an image and its result takes longer than a window of a few elements: where both
are turned for one convolution alone, it is computed channels first, lanes along its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._channels_first import as_they_lie, channels_first
from autotune.graph.rewriter import Rewriter

LEAST_COLUMNS = 8
"""Results in a row from which on vectors along it are worth it (as of pools)."""

MOST_ELEMENTS = 100
"""Elements of a window up to which turning two images costs more than the lanes that ragged rows
leave empty (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwisePlanes:
    """transpose(conv2d(transpose(x), w)) -> conv_planes(x, w), a window for each channel."""

    def run(self, graph: Graph) -> Graph:
        return as_they_lie(graph, _planes)


def _planes(new: Rewriter, node: Node) -> str | None:
    image, weights = new.inputs(node)
    base = channels_first(new, image) if _is_depthwise(new, node) else None
    if base is None:
        return None
    batch, height, width, channels = new.shape(image)
    planes = new.emit("reshape", [base], node, shape=(batch, channels, height, width))
    windows = new.constant(new.constants[weights][:, :, 0].transpose(2, 0, 1), weights)
    attrs = {name: value for name, value in node.attributes.items() if name != "groups"}
    value = new.emit("conv_planes", [planes, windows], node, **attrs)
    return new.emit("transpose", [value], node, perm=(0, 2, 3, 1))


def _is_depthwise(new: Rewriter, node: Node) -> bool:
    """Whether every channel of wide rows has one constant window."""
    image, weights = new.inputs(node)
    if weights not in new.constants:
        return False
    rows, columns, per_group, filters = new.shape(weights)
    return (
        new.types[image].dtype == new.types[weights].dtype == "float32"
        and per_group == 1
        and new.shape(image)[3] == filters > 1
        and rows * columns <= MOST_ELEMENTS
        and new.graph.types[node.output].shape[2] >= LEAST_COLUMNS
    )
