"""All micro-benchmarks. In: a target of this machine, and the cores to use. Out: MachineFacts.

Takes a few seconds. Every figure is a least or a low one of many short samples, and what memory
and other cores do is measured in several rounds, of which the best counts: what somebody else does
on the machine disturbs some of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.caches import ROOT, sizes
from autotune.machine.curves import Curve, falling, rising
from autotune.machine.facts import RUNS, MachineFacts, Scattered
from autotune.machine.measured import on_machine
from autotune.measure.facts.arithmetic import Registers
from autotune.measure.facts.beside import Beside
from autotune.measure.facts.cores import Together, regions
from autotune.measure.facts.memory import MemoryProbe
from autotune.measure.facts.processor import processor_of
from autotune.measure.others import Others
from autotune.measure.profile import parallel_region_s
from autotune.target import Target

ROUNDS = 3
"""Times that everything is measured: the fastest counts."""


def measure_facts(
    target: Target,
    cores: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
) -> MachineFacts:
    """Raises BuildError where the target's code cannot be built or loaded here."""
    caches = tuple(sorted(sizes(ROOT).items()))
    alone, others = on_machine(target.with_threads(1), caches), Others(cores)
    registers = Registers(alone, clock)
    memory = MemoryProbe(alone, clock, np.random.default_rng(seed))
    beside = Beside(alone, clock)
    together = Together(alone, clock, cores)
    rounds = []
    for _ in range(ROUNDS):
        rounds.append(_round(memory, together))
        registers.again()
    return MachineFacts(
        processor=processor_of(target),
        cores=len(cores),
        caches=caches,
        clock_hz=registers.clock_hz(),
        clocks=registers.clocks(),
        arithmetic=registers.arithmetic(),
        add_latency_s=registers.add_latency_s(),
        denormal_s=registers.denormal_s(),
        loads=registers.loads(),
        stores=registers.stores(),
        broadcasts_per_s=registers.broadcasts_per_s(),
        additions_beside=beside.additions(),
        lone_line=beside.lone_line(),
        gathers_per_s=registers.gathers_per_s(),
        regions=regions(lambda n: parallel_region_s(target.with_threads(n), clock), len(cores)),
        **best_of(rounds),
        others=_rounded(others.share()),
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)


def _round(memory: MemoryProbe, together: Together) -> dict[str, Any]:
    """Fields of the facts, measured once."""
    return {
        "load_curve": memory.load_curve(),
        "transfer_s": together.transfer_s(),
        "store_curve": memory.store_curve(),
        "transfer_bytes_per_s": together.handed_bytes_per_s(dirty=False),
        "copy_curve": memory.copy_curve(),
        "transfer_dirty_bytes_per_s": together.handed_bytes_per_s(dirty=True),
        "latency_curve": memory.latency_curve(),
        "load_curve_all": together.load_curve(memory.data),
        "page_curve": memory.page_curve(),
        "scattered": memory.scattered(),
        "in_order": memory.in_order(),
    }


def best_of(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The highest rates and the shortest times of several rounds, field by field."""
    out: dict[str, Any] = {}
    for name in rounds[0]:
        found = [r[name] for r in rounds]
        if found[0] is None:
            out[name] = None
        elif name in RUNS:
            least = min if name == "scattered" else statistics.median
            out[name] = tuple(_of_rounds(rows, least) for rows in zip(*found, strict=True))
        elif name in SHORTEST:
            out[name] = rising(_points(found, min)) if name in CURVES else min(found)
        else:
            out[name] = falling(_points(found, max)) if name in CURVES else max(found)
    return out


CURVES = (
    "load_curve", "store_curve", "copy_curve", "load_curve_all", "latency_curve", "page_curve",
)  # fmt: skip
SHORTEST = ("transfer_s", "latency_curve", "page_curve")
"""Times; the others are rates."""


def _points(curves: Sequence[Curve], better: Callable[[Iterable[float]], float]) -> Curve:
    """The better value at every footprint."""
    return tuple((at[0][0], better(value for _, value in at)) for at in zip(*curves, strict=True))


def _of_rounds(rows: Sequence[Scattered], least: Callable[[Iterable[float]], float]) -> Scattered:
    """The times of a footprint: the shortest of scattered lines; of those in order the middle
    ones, since what the hardware foresees changes from round to round."""
    return Scattered(
        footprint=rows[0].footprint,
        near_s=least([r.near_s for r in rows]),
        far_s=least([r.far_s for r in rows]),
        prefetched_s=least([r.prefetched_s for r in rows]),
    )
