"""Pointwise convolutions between transposes become products that read and write what lies there.

In: a graph whose transposes are as near to the outputs as they come. Out: the same results, up to
rounding. Filters times an image with its channels first is the image that is asked for, channels
first: neither is turned. Where only one side is, the transposes may meet others and stay. Windows
of few elements, as those of a sound wave, are columns of such an image first (im2col; Chellapilla,
Puri, Simard 2006), which is much less to write than the result would be to turn.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes._channels_first import as_they_lie, channels_first
from autotune.graph.rewriter import Rewriter
from autotune.ops import conv

LEAST_POINTS = 16
"""Points of an image from which on vectors along them are full."""

LEAST_DEPTH = 8
"""Channels of a group from which on it is a product; windows over fewer are scaled points."""

LEAST_FILTERS = 8
"""Filters to each element of a window from which on its columns cost little: they are written and
read for an eighth of what is not turned (chosen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseProducts:
    """transpose(conv2d(transpose(x), w)) -> matmul(w, x), for windows of one point; of columns of
    x for windows of few elements."""

    def run(self, graph: Graph) -> Graph:
        return as_they_lie(graph, _product)


def _product(new: Rewriter, node: Node) -> str | None:
    weights = new.inputs(node)[1]
    shape = new.graph.types[node.output].shape
    batch, points, filters = shape[0], math.prod(shape[1:3]), shape[3]
    floats = all(new.types[i].dtype == "float32" for i in new.inputs(node))
    if points < LEAST_POINTS or weights not in new.constants or not floats:
        return None
    base = _columns(new, node)
    if base is None:
        return None
    array = new.constants[weights]
    weight = array.reshape(-1, filters)  # a row of filters for each element of a window
    groups = new.shape(new.inputs(node)[0])[3] // array.shape[2]
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


def _columns(new: Rewriter, node: Node) -> str | None:
    """What filters multiply, channels first; None where a convolution is to stay."""
    image = new.inputs(node)[0]
    batch, height, width, channels = new.shape(image)
    alone = channels == 1
    base = image if alone else channels_first(new, image)
    if base is None or _is_pointwise(new, node):
        return base if base is None or not alone else None
    if not _is_narrow(new, node):
        return None
    planes = new.emit("reshape", [base], node, shape=(batch, channels, height, width))
    return _windows(new, node, planes)


def _windows(new: Rewriter, node: Node, planes: str) -> str:
    """Elements of windows as channels of an image, one after the other."""
    image, weights = (new.types[i] for i in new.inputs(node))
    windows = conv.windows(image, weights, node.attributes)
    around = [e for w in windows for e in w.reach()]
    if any(around):
        top, bottom, left, right = around
        pads = (0, 0, top, left, 0, 0, bottom, right)
        planes = new.emit("pad", [planes], node, pads=pads, value=0.0)
    batch, channels = new.shape(planes)[:2]
    parts = []
    for tap in itertools.product(*(range(w.kernel) for w in windows)):
        rows, columns = (w.slice(k) for w, k in zip(windows, tap, strict=True))
        parts.append(new.emit(
            "slice", [planes], node, starts=(0, 0, rows.start, columns.start),
            stops=(batch, channels, rows.stop, columns.stop),
            steps=(1, 1, rows.step, columns.step),
        ))  # fmt: skip
    return new.emit("concat", parts, node, axis=1) if len(parts) > 1 else parts[0]


def _is_narrow(new: Rewriter, node: Node) -> bool:
    """Whether windows have few elements to each filter, and reach into the image."""
    image, weights = (new.types[i] for i in new.inputs(node))
    rows, columns, channels, filters = weights.shape
    windows = conv.windows(image, weights, node.attributes)
    return (
        channels == image.shape[3]
        and rows * columns * channels * LEAST_FILTERS <= filters
        and all(w.meets_image for w in windows)
    )


def _is_pointwise(new: Rewriter, node: Node) -> bool:
    """Whether a convolution multiplies each point by one constant matrix."""
    image, weights = (new.shape(i) for i in new.inputs(node))
    alike = image[:3] == new.graph.types[node.output].shape[:3]
    return alike and weights[:2] == (1, 1) and weights[2] >= LEAST_DEPTH
