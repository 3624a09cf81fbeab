"""Dilated convolutions without the work on padding.

In: a graph with constant weights. Out: the same results. Where the dilation is about as large as
the image, the first outputs have only the last taps of their windows inside, the last ones only
the first: each strip of outputs then is a convolution of its own with the taps that it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter
from autotune.ops.conv import windows
from autotune.ops.window import Window

_MOST_USED = 0.8
"""Share of the taps that may meet the image: more, and there is too little to gain."""
_FEW = 2
"""A strip of fewer outputs has too little work for a kernel."""
Strip = tuple[range, range]


@dataclass(frozen=True, slots=True, kw_only=True)
class DilatedStrips:
    """conv2d(x, W) -> concat(conv2d(slice of x, some taps of W), ...) along `axis`, 1 or 2."""

    axis: int

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        for node in graph.nodes:
            strips = self._strips(graph, node) if node.op == "conv2d" else ()
            if len(strips) > 1:
                parts = [self._emit(new, node, *strip) for strip in strips]
                joined = new.emit("concat", parts, node, axis=self.axis)
                new.replace(node.output, joined)
            else:
                new.keep(node)
        return new.finish()

    def _strips(self, graph: Graph, node: Node) -> tuple[Strip, ...]:
        """(outputs, taps) of each strip; none where they would not pay."""
        x, w = node.inputs
        window = windows(graph.types[x], graph.types[w], node.attributes)[self.axis - 1]
        dense = graph.types[w].shape[2] > 1
        # Where nothing is dilated, other algorithms do less work than this.
        dilated = window.dilation > 1
        if w not in graph.constants or not dense or not dilated or graph.types[x].shape[0] > 1:
            return ()
        strips = tuple(_live(window))
        used = sum(len(outputs) * len(taps) for outputs, taps in strips)
        pays = used <= _MOST_USED * window.positions * window.kernel
        fits = all(len(taps) and len(outputs) >= _FEW for outputs, taps in strips)
        return strips if pays and fits else ()

    def _emit(self, new: Rewriter, node: Node, outputs: range, taps: range) -> str:
        x, w = new.inputs(node)
        axes, d = list(windows(new.types[x], new.types[w], node.attributes)), self.axis - 1
        first = outputs.start * axes[d].stride - axes[d].before + taps.start * axes[d].dilation
        steps = len(outputs) - 1, len(taps) - 1
        reach = steps[0] * axes[d].stride + steps[1] * axes[d].dilation
        starts, stops = [0] * 4, list(new.shape(x))
        starts[self.axis], stops[self.axis] = first, first + reach + 1
        if tuple(stops) != new.shape(x) or any(starts):
            begin, end = tuple(starts), tuple(stops)
            x = new.emit("slice", [x], node, starts=begin, stops=end, steps=(1, 1, 1, 1))
        cut = (slice(None),) * d + (slice(taps.start, taps.stop),)
        weights = new.constant(np.ascontiguousarray(new.constants[w][cut]), w)
        spread = axes[d].dilation if len(taps) > 1 else 1
        axes[d] = dataclasses.replace(axes[d], before=0, after=0, dilation=spread)
        pads = (*(a.before for a in axes), *(a.after for a in axes))
        attrs = {"pads": pads, "dilations": tuple(a.dilation for a in axes)}
        return new.emit("conv2d", [x, weights], node, **node.attributes | attrs)


def _live(window: Window) -> Iterator[Strip]:
    """Neighbouring outputs and the taps that read the image for all of them."""

    def taps(output: int) -> range:
        first = output * window.stride - window.before
        inside = [
            t for t in range(window.kernel) if 0 <= first + t * window.dilation < window.extent
        ]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    for live, outputs in groupby(range(window.positions), key=taps):
        found = list(outputs)
        yield range(found[0], found[-1] + 1), live
