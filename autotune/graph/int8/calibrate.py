"""Ranges of a graph's values. In: a graph and samples of its inputs. Out: a range per value.

The graph is run by numpy in float32. Of every value the outermost elements are left out, so that a
few outliers do not cost all others their precision. Values that are infinite or nan on a sample
have no range: no bytes stand for those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.feeds import Feeds
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array

MOST_ELEMENTS = 1 << 18
"""Elements of a value, evenly spread, that its range is taken from, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Smallest and largest element worth telling apart."""

    low: float
    high: float

    def union(self, other: Range) -> Range:
        return Range(low=min(self.low, other.low), high=max(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Ranges by value, of those that have one, and the graph's outputs on every sample, in
    float32."""

    samples: tuple[Feeds, ...]
    ranges: Mapping[str, Range]
    outputs: tuple[Mapping[str, Array], ...]


def calibrate(
    graph: Graph,
    samples: Sequence[Feeds],
    coverage: float = 0.9999,
    at: Callable[[Feeds], Graph] | None = None,
) -> Calibration:
    """`coverage`: the share of a value's elements that its range holds, 1 for all of them; `at`:
    the graph at the sizes of a sample, where they are open."""
    ranges: dict[str, Range] = {}
    endless: set[str] = set()

    def observe(name: str, array: Array) -> None:
        if array.dtype.kind != "f" or not array.size or name in endless:
            return
        if not np.isfinite(array).all():
            endless.add(name)
            ranges.pop(name, None)
            return
        found = _range(array, coverage)
        ranges[name] = ranges[name].union(found) if name in ranges else found

    outputs = []
    for feeds in samples:
        for name, _ in graph.inputs:
            observe(name, feeds[name])
        sized = graph if at is None else at(feeds)
        outputs.append(run_graph(sized, feeds, "float32", observe))
    return Calibration(samples=tuple(samples), ranges=ranges, outputs=tuple(outputs))


def _range(array: Array, coverage: float) -> Range:
    flat = array.reshape(-1)
    low, high = float(flat.min()), float(flat.max())
    if coverage < 1 and flat.size > 1 / (1 - coverage):
        flat = flat[:: -(-flat.size // MOST_ELEMENTS)]
        outside = (1 - coverage) / 2
        inner = np.quantile(flat, (outside, 1 - outside))
        # A bound that many elements share (of a relu) is none of outliers.
        low, high = (0.0 if b == 0 else float(q) for b, q in zip((low, high), inner, strict=True))
    return Range(low=low, high=high)
