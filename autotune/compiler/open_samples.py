"""Samples of inputs whose sizes are open, for int8. In: the inputs' types, the ranges of their
sizes, and what a user gives, if anything. Out: samples, and a model's graph at the sizes of one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.compiler.prepare import MOST_SAMPLES, RANDOM_SAMPLES, OpenSamples
from autotune.graph.at_sizes import graph_at
from autotune.graph.feeds import Feeds, Samples, given_feeds, random_feeds
from autotune.graph.ir import Graph
from autotune.runtime.open_image import Unit
from autotune.size_ranges import SizedType, SizeRange, read_sizes
from autotune.types import TensorType

DRAWN_ELEMENTS = 1 << 18
"""Elements of a drawn sample's inputs, if the least sizes allow: numpy runs the model on it."""

Inputs = Mapping[str, SizedType]
Ranges = Mapping[str, SizeRange]


def check_open_samples(inputs: Inputs, ranges: Ranges, source: Samples | None) -> None:
    """Raises FeedError of samples that the model does not take."""
    for feeds in given_feeds(inputs, source, MOST_SAMPLES) if source is not None else ():
        sizes_of(inputs, ranges, feeds)


def open_samples(
    inputs: Inputs, ranges: Ranges, units: tuple[Unit, ...], source: Samples | None
) -> OpenSamples:
    """Those of the user's samples whose sizes are in these ranges; random ones where there are
    none. `units`: what is counted of every symbol."""
    given = given_feeds(inputs, source, MOST_SAMPLES) if source is not None else []
    feeds = [each for each in given if _within(inputs, ranges, each)]

    def at(graph: Graph, sample: Feeds) -> Graph:
        sizes = sizes_of(inputs, ranges, sample)
        return graph_at(graph, {unit.name: unit.count(sizes[unit.name]) for unit in units})

    return OpenSamples(feeds=feeds or _drawn(inputs, ranges), at=at)


def sizes_of(inputs: Inputs, ranges: Ranges, feeds: Feeds) -> dict[str, int]:
    """The size of every symbol in a sample. Raises FeedError."""
    return read_sizes(inputs, {name: array.shape for name, array in feeds.items()}, ranges)


def _within(inputs: Inputs, ranges: Ranges, feeds: Feeds) -> bool:
    anywhere = dict.fromkeys(ranges, SizeRange(least=0))
    sizes = sizes_of(inputs, anywhere, feeds)
    return all(sizes[name] in allowed for name, allowed in ranges.items())


def _drawn(inputs: Inputs, ranges: Ranges) -> list[Feeds]:
    """Random inputs of seeded sizes, the largest first."""
    rng = np.random.default_rng(0)
    drawn = [_drawn_types(inputs, ranges, rng) for _ in range(RANDOM_SAMPLES)]
    drawn.sort(key=_elements, reverse=True)
    return [random_feeds(types, number) for number, types in enumerate(drawn)]


def _drawn_types(
    inputs: Inputs, ranges: Ranges, rng: np.random.Generator
) -> dict[str, TensorType]:
    """Inputs of sizes from the least of a range, but 0, to its middle."""
    first = {name: each.least or min(each.step, each.most) for name, each in ranges.items()}
    steps = {}
    for name, each in ranges.items():
        most = max(0, each.middle - first[name]) // each.step
        steps[name] = int(rng.integers(0, most + 1))
    while True:
        sizes = {name: first[name] + n * ranges[name].step for name, n in steps.items()}
        types = {name: kind.at(sizes) for name, kind in inputs.items()}
        if _elements(types) <= DRAWN_ELEMENTS or not any(steps.values()):
            return types
        steps[max(steps, key=lambda name: steps[name])] //= 2


def _elements(types: Mapping[str, TensorType]) -> int:
    return sum(kind.size for kind in types.values())
