"""A graph in 8-bit integers. In: an optimized float32 graph and samples of its inputs. Out: the
graph on bytes, and what is needed to say how accurate it is.

Contractions that would lose too much stay in float32, and floats stay beside bytes where others
than contractions read what bytes would spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.feeds import Feeds
from autotune.graph.int8.accuracy import Quantization, compare
from autotune.graph.int8.calibrate import Calibration, calibrate
from autotune.graph.int8.errors import losses
from autotune.graph.int8.lower import lower
from autotune.graph.int8.plan import QuantizationPlan, plan
from autotune.graph.ir import Graph


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
    that bytes would have had."""

    graph: Graph
    plan: QuantizationPlan
    calibration: Calibration
    kept: Mapping[str, float]

    def judged(self, run: Callable[[Feeds], Feeds]) -> Quantization:
        """How far the outputs of `run`, which computes the graph, are from float32."""
        got = [run(feeds) for feeds in self.calibration.samples]
        return Quantization(
            contractions=len(self.plan.contractions),
            kept=tuple(self.kept.items()),
            outputs=compare(self.calibration.outputs, got),
        )


def quantize(
    graph: Graph, samples: Sequence[Feeds], rules: QuantizationRules | None = None
) -> Quantized:
    """The graph on bytes, with its accuracy on the samples. `graph`: after the passes."""
    rules = rules or QuantizationRules()
    calibration = calibrate(graph, samples, rules.coverage)
    first = plan(graph, calibration.ranges)
    lost = losses(graph, samples[0], first)
    kept = {v: db for v, db in lost.contractions.items() if db < rules.contraction_db}
    exact = frozenset(v for v, db in lost.values.items() if db < rules.value_db)
    final = plan(graph, calibration.ranges, frozenset(kept), exact)
    names = {node.output: node.name for node in graph.nodes}
    return Quantized(
        graph=lower(graph, final),
        plan=final,
        calibration=calibration,
        kept={names[value]: db for value, db in kept.items()},
    )
