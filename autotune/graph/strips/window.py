"""Depthwise convolutions by large windows without most of the work on padding.

In: a graph with constant weights. Out: the same results. Of a window that is about as large as the
image, outputs near an edge need only the taps that lie inside: strips of outputs become
convolutions of their own, with the taps that any of their outputs needs.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter
from autotune.ops.conv import windows
from autotune.ops.window import Window

LEAST_OUTPUTS = 4
"""Outputs of a strip along the axis: register tiles have about as many (chosen)."""
STRIP_COST = 0.05
"""Share of the whole work that each strip must save: a kernel's beginning, and shorter tiles
(assumed)."""
LEAST_ELEMENTS = 100
"""Elements of a window from which on a strip's work is much more than beginning it (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStrips:
    """conv2d(x, W), a window for each channel -> concat(conv2d(slice of x, some taps of W), ...)
    along `axis`, 1 or 2."""

    axis: int

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        for node in graph.nodes:
            strips = self._strips(graph, node) if node.op == "conv2d" else []
            if len(strips) > 1:
                parts = [self._emit(new, node, outputs) for outputs in strips]
                new.replace(node.output, new.emit("concat", parts, node, axis=self.axis))
            else:
                new.keep(node)
        return new.finish()

    def _strips(self, graph: Graph, node: Node) -> list[range]:
        """Outputs of strips that save work; none where none do."""
        x, w = node.inputs
        rows, columns, per_group, filters = graph.types[w].shape
        depthwise = per_group == 1 and graph.types[x].shape[3] == filters > 1
        if w not in graph.constants or not depthwise or rows * columns < LEAST_ELEMENTS:
            return []
        window = windows(graph.types[x], graph.types[w], node.attributes)[self.axis - 1]
        most = window.positions // LEAST_OUTPUTS
        choices = [_split(window.positions, count) for count in range(1, most + 1)]
        return min(choices, key=lambda strips: _cost(window, strips), default=[])

    def _emit(self, new: Rewriter, node: Node, outputs: range) -> str:
        x, w = new.inputs(node)
        axes, d = list(windows(new.types[x], new.types[w], node.attributes)), self.axis - 1
        axis, taps = axes[d], _taps(axes[d], outputs)
        first = outputs.start * axis.stride - axis.before + taps.start * axis.dilation
        reach = (len(outputs) - 1) * axis.stride + (len(taps) - 1) * axis.dilation
        end = first + reach + 1
        starts, stops = [0] * 4, list(new.shape(x))
        starts[self.axis], stops[self.axis] = max(first, 0), min(end, axis.extent)
        if tuple(stops) != new.shape(x) or any(starts):
            begin, behind = tuple(starts), tuple(stops)
            x = new.emit("slice", [x], node, starts=begin, stops=behind, steps=(1, 1, 1, 1))
        cut = (slice(None),) * d + (slice(taps.start, taps.stop),)
        weights = new.constant(np.ascontiguousarray(new.constants[w][cut]), w)
        before, after = max(-first, 0), max(end - axis.extent, 0)
        axes[d] = dataclasses.replace(axis, before=before, after=after)
        pads = (*(a.before for a in axes), *(a.after for a in axes))
        return new.emit("conv2d", [x, weights], node, **node.attributes | {"pads": pads})


def _split(positions: int, count: int) -> list[range]:
    """So many strips of about as many outputs."""
    ends = [positions * n // count for n in range(count + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]


def _cost(window: Window, strips: list[range]) -> float:
    """Work over that of the whole convolution, and what strips cost beside it."""
    used = sum(len(outputs) * len(_taps(window, outputs)) for outputs in strips)
    return used / (window.positions * window.kernel) + STRIP_COST * len(strips)


def _taps(window: Window, outputs: range) -> range:
    """The taps from the first to the last that read the image for any of the outputs; all where
    none does."""

    def first(output: int) -> int:
        return output * window.stride - window.before

    met = [
        tap
        for tap in range(window.kernel)
        if any(0 <= first(o) + tap * window.dilation < window.extent for o in outputs)
    ]
    return range(met[0], met[-1] + 1) if met else range(window.kernel)
