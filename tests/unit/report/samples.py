"""A model tuned in imagination: the tiny network, made-up times and a few failures."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

import cost_model
from autotune.db.types import Latency, Record
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.placement.partition import partition
from autotune.placement.types import Partition
from autotune.report.earlier import Earlier
from autotune.report.facts import Facts, History, collect
from autotune.schedule.loops.nest import Reorder
from autotune.target import Target
from search_spaces.rules import rule_for
from tests.unit.tuner.fakes import MemoryStore
from tests.unit.tuner.synthetic import PROFILE, TARGET

ERROR = "build: expected <8> & 'x', got \"y\""


@functools.cache
def tiny() -> Partition:
    return partition(optimize(load_model("zoo:tiny")))


def filled(parts: Partition, count: int = 40, target: Target = TARGET) -> MemoryStore:
    """Up to `count` records per task, ever faster; every seventh failed, never the first."""
    store = MemoryStore()
    for task in parts.weights():
        rule = rule_for(task, target)
        space = rule.space(task, target)
        configs = dict.fromkeys([cost_model.default(task, Machine.of(target), rule)])
        rows = space.rows(5000, np.random.default_rng(0))
        configs |= dict.fromkeys(space.config(row) for row in rows[:count])
        for number, config in enumerate(configs):
            worked = number % 7 != 3
            result = MeasureResult(
                status=Status.OK if worked else Status.BUILD_ERROR,
                times_s=(1e-3 / (1 + number),) if worked else (),
                error="" if worked else ERROR,
                device="synthetic",
            )
            store.kept.append(
                Record(
                    task=task, target=target, rule=rule.name, config=config,
                    schedule=(Reorder(loops=(f"l{number}", "m")),),
                    result=result, versions=(("autotune", "0.1.0"),),
                    created="2026-01-01T00:00:00",
                )
            )  # fmt: skip
    return store


def latency(device: str = PROFILE.device, after_s: float = 8.6e-3) -> Latency:
    """Of the tiny network, before and after."""
    return Latency(
        model_key="0123456789abcdef",
        model="tiny",
        target_key=TARGET.key,
        device=device,
        before=(11.1e-3,) * 3,
        after=(after_s / 2, after_s, after_s * 2),
        kernels_before_s=11e-3,
        kernels_after_s=None,
        created="2026-01-01T00:00:00+00:00",
    )


def facts(
    store: MemoryStore | None = None,
    latencies: Sequence[Latency] = (),
    earlier: Earlier | None = None,
) -> Facts:
    store = _filled() if store is None else store
    history = History(latencies=latencies, earlier=earlier)
    return collect(tiny(), store, PROFILE, "log <1>.db", history)


@functools.cache
def _filled() -> MemoryStore:
    """Nobody adds to it."""
    return filled(tiny())


@functools.cache
def untimed() -> Facts:
    """Of a log without latencies of the model."""
    return facts()


@functools.cache
def timed() -> Facts:
    return facts(latencies=[latency()])
