"""A model's graph as it is cut into kernels. In: an imported graph, a precision, and samples of
its inputs for int8. Out: the graph after the passes, on bytes where that was asked for, or where
the model itself says how.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.graph.feeds import Feeds, Samples, sample_feeds
from autotune.graph.int8.qdq import by_own_steps, by_snapped_numbers, has_own_steps, in_floats
from autotune.graph.int8.quantize import Pays, Quantized, quantize
from autotune.graph.ir import Graph
from autotune.graph.passes.drop_round_trips import DropRoundTrips
from autotune.graph.passes.pointwise_products import PointwiseProducts
from autotune.graph.pipeline import ARRANGE, CLEAN, optimize
from autotune.graph.strips.rows import RowStrips
from autotune.placement.declared_halves import as_declared
from autotune.placement.short_tensors import ShortTensors
from autotune.rewrite.search import Derived, Found
from autotune.types import Task

RANDOM_SAMPLES = 4
"""Inputs drawn for calibration where the user gives none."""
MOST_SAMPLES = 64
"""Inputs of a user's calibration that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`quantized`: where int8 was asked for; `derivation`: the rewrites that were applied;
    `notes`: lines for people."""

    graph: Graph
    quantized: Quantized | None = None
    derivation: tuple[Derived, ...] = ()
    decisive: tuple[Task, ...] = ()
    """Tasks whose times would choose between the rewrites that are predicted to gain."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSamples:
    """Samples of a model of open sizes, and a graph of it at the sizes of one."""

    feeds: Sequence[Feeds]
    at: Callable[[Graph, Feeds], Graph]


def check_samples(graph: Graph, precision: str, calibration: Samples | None) -> None:
    """Raises ConfigError where there are samples and nothing to calibrate by them, FeedError of
    samples that are no inputs of the graph."""
    if calibration is not None and precision != "int8":
        raise ConfigError(
            f"samples for calibration are for precision int8, the precision is {precision}; leave "
            "them out, or ask for int8"
        )
    if calibration is not None:
        sample_feeds(dict(graph.inputs), calibration, MOST_SAMPLES)


def prepare(
    graph: Graph,
    precision: str,
    calibration: Samples | OpenSamples | None = None,
    *,
    short: str = "",
    halves: bool = False,
    rewrite: Callable[[Graph], Found] | None = None,
    pays: Pays | None = None,
) -> Prepared:
    """`calibration`: samples for int8, as `sample_feeds` takes them, or of open sizes; None:
    random ones. `short`: what tensors between kernels are rounded to; `halves`: whether kernels
    read and write what is declared to be float16; `rewrite`: finds a graph of floats that takes
    less time; `pays`: which products stay in float32 where bytes are asked for, or are the
    model's own. Raises ConfigError, and FeedError of samples."""
    made = _prepared(graph, precision, calibration, short=short, rewrite=rewrite, pays=pays)
    return dataclasses.replace(made, graph=as_declared(made.graph)) if halves else made


def _prepared(
    graph: Graph, precision: str, calibration: Samples | OpenSamples | None = None,
    *, short: str = "", rewrite: Callable[[Graph], Found] | None = None, pays: Pays | None = None,
) -> Prepared:  # fmt: skip
    if not isinstance(calibration, OpenSamples):
        check_samples(graph, precision, calibration)
    # Strips keep results in the cache; as bytes these are small. Bytes are products by weights.
    whole = tuple(p for p in ARRANGE if not isinstance(p, RowStrips | PointwiseProducts))
    on_bytes = precision == "int8" or has_own_steps(graph)
    found = Found(graph=optimize(graph, CLEAN))
    if rewrite is not None and not on_bytes:
        found = rewrite(found.graph)
    own = by_own_steps(optimize(found.graph, whole if on_bytes else ARRANGE), pays)
    ready = DropRoundTrips().run(own.graph) if on_bytes else own.graph
    if precision != "int8":
        if own.none_on_bytes:  # strips pay again
            ready = DropRoundTrips().run(in_floats(optimize(found.graph, ARRANGE)))
        ready = ShortTensors(dtype=short).run(ready) if short else ready
        decisive = (*found.decisive, *own.slower.decisive)
        return Prepared(graph=ready, derivation=found.steps, decisive=decisive, notes=own.notes())
    keep = by_snapped_numbers(ready)
    if isinstance(calibration, OpenSamples):
        at = functools.partial(calibration.at, ready)
        quantized = quantize(ready, calibration.feeds, pays=pays, at=at, keep=keep)
    else:
        count = RANDOM_SAMPLES if calibration is None else MOST_SAMPLES
        samples = sample_feeds(dict(graph.inputs), calibration, count)
        quantized = quantize(ready, samples, pays=pays, keep=keep)
    if quantized.slower and not quantized.plan.contractions:
        floats = _prepared(graph, "float32", rewrite=rewrite, pays=pays)
        decisive = (*quantized.decisive, *floats.decisive)
        return dataclasses.replace(floats, quantized=quantized, decisive=decisive)
    decisive = (*own.slower.decisive, *quantized.decisive)
    return Prepared(
        graph=quantized.graph, quantized=quantized, decisive=decisive, notes=own.notes()
    )
