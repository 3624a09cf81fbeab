"""Convolutions without the parts of their windows that never meet the image.

In: a graph with constant weights. Out: the same results from smaller windows, and less padding. A
dilation larger than the image leaves only the middle of a window inside, and so does any padding
around an image of one point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.ops.conv import windows
from autotune.ops.window import Window
from autotune.sizes import any_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTaps:
    """conv2d(x, W; pads, dilations) -> conv2d(x, rows and columns of W that meet x; less pads)."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _cut, "conv2d")


def _cut(new: Rewriter, node: Node) -> str | None:
    """The smaller convolution; None where every part of the window meets the image."""
    x, w = new.inputs(node)
    if w not in new.constants:
        return None
    axes = windows(new.types[x], new.types[w], node.attributes)
    kept = tuple(_meets(axis) for axis in axes)
    if all(len(taps) == axis.kernel for taps, axis in zip(kept, axes, strict=True)):
        return None
    before = [a.before - a.dilation * taps.start for taps, a in zip(kept, axes, strict=True)]
    after = [
        a.after - a.dilation * (a.kernel - taps.stop) for taps, a in zip(kept, axes, strict=True)
    ]
    rows, columns = (slice(taps.start, taps.stop) for taps in kept)
    weights = new.constant(np.ascontiguousarray(new.constants[w][rows, columns]), w)
    attrs = node.attributes | {
        "pads": (*before, *after),
        # Of a single row or column no distance is left.
        "dilations": tuple(
            a.dilation if len(taps) > 1 else 1 for taps, a in zip(kept, axes, strict=True)
        ),
    }
    return new.emit("conv2d", [x, weights], node, **attrs)


def _meets(axis: Window) -> range:
    """The taps from the first to the last that read the image anywhere; all of them where what is
    left would need negative padding, or where only a run knows the image's size."""
    if any_size((axis.extent, axis.positions)):
        return range(axis.kernel)
    met = [
        tap
        for tap in range(axis.kernel)
        if any(
            0 <= p * axis.stride - axis.before + tap * axis.dilation < axis.extent
            for p in range(axis.positions)
        )
    ]
    if not met:
        return range(axis.kernel)
    first, last = met[0], met[-1]
    fits = axis.before >= axis.dilation * first
    fits = fits and axis.after >= axis.dilation * (axis.kernel - 1 - last)
    return range(first, last + 1) if fits else range(axis.kernel)
