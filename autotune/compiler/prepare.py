"""A model's graph as it is cut into kernels. In: an imported graph, a precision, and samples of
its inputs for int8. Out: the graph after the passes, on bytes where that was asked for, or where
the model itself says how.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.graph.feeds import Samples, sample_feeds
from autotune.graph.int8.qdq import by_own_steps, has_own_steps
from autotune.graph.int8.quantize import Quantized, quantize
from autotune.graph.ir import Graph
from autotune.graph.passes.drop_round_trips import DropRoundTrips
from autotune.graph.passes.row_strips import RowStrips
from autotune.graph.pipeline import PIPELINE, optimize
from autotune.placement.short_tensors import ShortTensors

RANDOM_SAMPLES = 4
MOST_SAMPLES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`quantized`: where int8 was asked for."""

    graph: Graph
    quantized: Quantized | None = None


def prepare(
    graph: Graph, precision: str, calibration: Samples | None = None, *, short: str = ""
) -> Prepared:
    """`calibration`: samples for int8, as `sample_feeds` takes them; None: random ones. `short`:
    what tensors between kernels are rounded to. Raises ConfigError, and FeedError of samples."""
    if calibration is not None and precision != "int8":
        raise ConfigError(
            f"samples for calibration are for precision int8, the precision is {precision}; leave "
            "them out, or ask for int8"
        )
    # Strips keep results in the cache; as bytes these are small.
    whole = tuple(p for p in PIPELINE if not isinstance(p, RowStrips))
    on_bytes = precision == "int8" or has_own_steps(graph)
    ready = by_own_steps(optimize(graph, whole if on_bytes else PIPELINE))
    ready = DropRoundTrips().run(ready) if on_bytes else ready
    if precision != "int8":
        return Prepared(graph=ShortTensors(dtype=short).run(ready) if short else ready)
    count = RANDOM_SAMPLES if calibration is None else MOST_SAMPLES
    samples = sample_feeds(dict(graph.inputs), calibration, count)
    quantized = quantize(ready, samples)
    return Prepared(graph=quantized.graph, quantized=quantized)
