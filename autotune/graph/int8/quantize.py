"""A graph in 8-bit integers. In: an optimized float32 graph and samples of its inputs. Out: the
graph on bytes, and what is needed to say how accurate it is.

Contractions that would lose too much stay in float32, and so do those that bytes make slower.
Floats stay beside bytes where others than contractions read what bytes would spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.graph.feeds import Feeds
from autotune.graph.int8.accuracy import Quantization, compare
from autotune.graph.int8.calibrate import Calibration, calibrate
from autotune.graph.int8.errors import losses
from autotune.graph.int8.lower import lower
from autotune.graph.int8.plan import QuantizationPlan, plan
from autotune.graph.ir import Graph
from autotune.types import Task

Lowered = Callable[[Graph, frozenset[str]], Graph]
"""A graph of the same values on bytes, but for contractions that stay, by their outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slower:
    """`times`: seconds in float32 and on bytes of contractions that stay in float32, by output;
    `decisive`: tasks whose measured times would choose."""

    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    decisive: tuple[Task, ...] = ()


Pays = Callable[[Graph, Lowered, frozenset[str]], Slower]
"""Which contractions of a graph of floats should stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationRules:
    """How careful to be. Decibels of signal to noise, on the first sample."""

    coverage: float = 0.9999
    contraction_db: float = 15.0
    """Contractions that would have less stay in float32."""
    value_db: float = 30.0
    """Decibels of signal over noise below which a value is kept as floats for all readers but
    contractions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """`graph` on bytes; `kept`: contractions left in float32, by node name, with the decibels
    that bytes would have had; `slower`: those that are left as they take less time, with seconds
    in float32 and on bytes; `decisive`: tasks whose measured times would choose again."""

    graph: Graph
    plan: QuantizationPlan
    calibration: Calibration
    kept: Mapping[str, float]
    slower: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    decisive: tuple[Task, ...] = ()

    def judged(self, run: Callable[[Feeds], Feeds]) -> Quantization:
        """How far the outputs of `run`, which computes the graph, are from float32."""
        got = [run(feeds) for feeds in self.calibration.samples]
        return Quantization(
            contractions=len(self.plan.contractions),
            kept=tuple(self.kept.items()),
            slower=tuple(self.slower.items()),
            outputs=compare(self.calibration.outputs, got),
        )


def quantize(
    graph: Graph,
    samples: Sequence[Feeds],
    rules: QuantizationRules | None = None,
    *,
    pays: Pays | None = None,
    at: Callable[[Feeds], Graph] | None = None,
    keep: frozenset[str] = frozenset(),
) -> Quantized:
    """The graph on bytes, with its accuracy on the samples. `graph`: after the passes; `pays`: a
    choice by time; `at`: the graph at the sizes of a sample, where they are open; `keep`: outputs
    of contractions that are not asked about. What is chosen by times and by noise is chosen at
    the first sample's sizes."""
    rules = rules or QuantizationRules()
    calibration = calibrate(graph, samples, rules.coverage, at)
    ranges = calibration.ranges
    sized = graph if at is None else at(samples[0])
    first, slower = plan(sized, ranges, keep), Slower()
    if pays is not None and first.contractions:
        slower = pays(
            sized, lambda g, kept: lower(g, plan(g, ranges, kept | keep)), first.contractions
        )
        first = plan(sized, ranges, keep | slower.times.keys())
    lost = losses(sized, samples[0], first)
    kept = {v: db for v, db in lost.contractions.items() if db < rules.contraction_db}
    exact = frozenset(v for v, db in lost.values.items() if db < rules.value_db)
    final = plan(graph, ranges, frozenset((*slower.times, *kept, *keep)), exact)
    names = {node.output: node.name for node in graph.nodes}
    return Quantized(
        graph=lower(graph, final),
        plan=final,
        calibration=calibration,
        kept={names[value]: db for value, db in kept.items()},
        slower={names[value]: times for value, times in slower.times.items()},
        decisive=slower.decisive,
    )
