"""Two made-up devices: what was fast on one is ranked anew by what the other is capable of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cost_model
from autotune.db.profiles import keep_profile, kept_profiles
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureResult, Status
from autotune.schedule.base import STEPS
from autotune.tuner.budget import Limits
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.seeds import seeds
from autotune.tuner.transfer import from_log
from cost_model.metrics import rank_correlation
from cost_model.subject import Subject
from search_spaces.base import RULES
from search_spaces.params import Config
from tests.unit.tuner.fakes import FakeRunner, partition_of, synthetic_rules
from tests.unit.tuner.synthetic import (
    PROFILE,
    TARGET,
    Named,
    SyntheticRule,
    matmul_task,
    subject,
    true_seconds,
)

TASK = matmul_task(256, 256, 256)
THERE = dataclasses.replace(
    PROFILE,
    device="there",
    target=dataclasses.replace(TARGET, cpu="other", vector_registers=12),
    levels=tuple(
        dataclasses.replace(level, load_bytes_per_s=level.load_bytes_per_s / slower)
        for level, slower in zip(PROFILE.levels, (1, 8, 8, 8), strict=True)
    ),
)
"""It has few registers and slow caches: other tiles are best there."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES._parts, "synthetic", SyntheticRule())
    monkeypatch.setitem(STEPS._parts, "named", Named)


def on(profile: DeviceProfile) -> Subject:
    return Subject.of(TASK, profile.target, profile, SyntheticRule())


def records(of: Subject, count: int) -> Iterator[Record]:
    rule = SyntheticRule()
    rows = of.space.sample(np.random.default_rng(0), count)
    for row, seconds in zip(rows, true_seconds(of, rows), strict=True):
        config = of.space.config(row)
        yield Record(
            task=of.task, target=of.target, rule="synthetic", config=config,
            schedule=rule.schedule(of.task, of.target, config),
            result=MeasureResult(
                status=Status.OK, times_s=(float(seconds),), device=of.profile.device
            ),
        )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TuningLog]:
    with TuningLog(tmp_path / "log.db") as found:
        found.append(records(on(THERE), 400))
        keep_profile(found, THERE)
        yield found


def seconds_here(config: Config) -> float:
    of = on(PROFILE)
    return float(true_seconds(of, of.rows([config]))[0])


def test_the_devices_differ_in_what_is_best() -> None:
    rows = on(PROFILE).space.rows(10**6, np.random.default_rng(0))
    here, there = (true_seconds(on(p), rows) for p in (PROFILE, THERE))
    assert here[np.argmin(there)] > 1.1 * here.min()


def test_what_another_device_measured_is_ranked_by_this_ones_profile(log: TuningLog) -> None:
    fastest = log.top(TASK.key, THERE.target, 16)
    (seed,) = seeds(on(PROFILE), log, kept_profiles(log))
    times = sorted(seconds_here(r.config) for r in fastest)
    assert seconds_here(seed) == times[0] < seconds_here(fastest[0].config)


def test_what_this_device_measured_counts_as_it_was_measured(log: TuningLog) -> None:
    log.append(records(subject(TASK), 40))
    best = log.best(TASK.key, TARGET)
    assert best is not None
    assert seeds(on(PROFILE), log, kept_profiles(log)) == (best.config,)


def test_without_a_profile_the_measured_times_and_this_ones_decide(log: TuningLog) -> None:
    (seed,) = seeds(on(PROFILE), log, {})
    assert seed in {r.config for r in log.top(TASK.key, THERE.target, 16)}


def test_a_run_tries_the_one_that_should_be_fastest_here_first(log: TuningLog) -> None:
    runner = FakeRunner()
    options = TuneOptions(
        target=TARGET, rules=synthetic_rules, limits=Limits(trials=2), profiles=kept_profiles(log)
    )
    tune_partition(partition_of(TASK), runner, log, options)
    tried = [r.schedule for r in runner.asked[:2]]
    (seed,) = seeds(on(PROFILE), log, kept_profiles(log))
    default = cost_model.default(TASK, Machine.of(TARGET), SyntheticRule())
    assert tried == [SyntheticRule().schedule(TASK, TARGET, c) for c in (default, seed)]


def test_records_described_by_their_own_profile_teach_what_holds_here(log: TuningLog) -> None:
    of = on(PROFILE)
    rows = of.space.rows(10**6, np.random.default_rng(1))
    described, true = of.describe(rows), true_seconds(of, rows)
    own, mistaken = (
        from_log(log, PROFILE, [], seed=0, profiles=profiles).improve(described).prior_s
        for profiles in (kept_profiles(log), {})
    )
    assert rank_correlation(own, true) > rank_correlation(described.prior_s, true)
    assert rank_correlation(own, true) > rank_correlation(mistaken, true)
