from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.measure.types import MeasureResult, Status
from autotune.schedule.loops.nest import Reorder
from autotune.tuner.transfer import PER_TASK, from_log, samples
from autotune.types import Task
from cost_model.metrics import rank_correlation
from search_spaces.base import RULES
from tests.unit.tuner.synthetic import (
    PROFILE,
    TARGET,
    SyntheticRule,
    matmul_task,
    subject,
    true_seconds,
)

OLD, NEW = matmul_task(512, 256, 128), matmul_task(256, 256, 256)


@pytest.fixture(autouse=True)
def _rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES._parts, "synthetic", SyntheticRule())


def records(task: Task, count: int) -> Iterator[Record]:
    of = subject(task)
    rows = of.space.sample(np.random.default_rng(0), count)
    for number, (row, seconds) in enumerate(zip(rows, true_seconds(of, rows), strict=True)):
        worked = number % 10 != 0
        yield Record(
            task=task, target=TARGET, rule="synthetic", config=of.space.config(row),
            schedule=(Reorder(loops=(f"l{number}", "m")),),
            result=MeasureResult(
                status=Status.OK if worked else Status.RUN_CRASH,
                times_s=(float(seconds),) if worked else (),
                device="there",
            ),
        )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TuningLog]:
    with TuningLog(tmp_path / "log.db") as found:
        found.append(records(OLD, 300))
        found.append(records(NEW, 20))
        yield found


def test_what_was_measured_again_counts_once(log: TuningLog) -> None:
    best = log.top(NEW.key, TARGET, 1)[0]
    slower = dataclasses.replace(best.result, times_s=(2 * best.result.median_s,))
    log.repeat([dataclasses.replace(best, result=slower, id=None)])
    found = [r for r in samples(log) if r.schedule == best.schedule and r.task == NEW]
    assert [r.result for r in found] == [slower]


def test_the_fastest_and_the_latest_of_each_task_are_taken(log: TuningLog) -> None:
    found = [r for r in samples(log) if r.task == OLD]
    every = sorted(r.result.median_s for r in log.records(OLD.key, TARGET))
    taken = sorted(r.result.median_s for r in found)
    assert PER_TASK // 2 < len(found) <= PER_TASK
    assert taken[: PER_TASK // 2] == every[: PER_TASK // 2]
    assert any(r.result.status is Status.RUN_CRASH for r in found)


def test_own_tasks_and_other_families_are_left_out(log: TuningLog) -> None:
    assert {r.task.key for r in samples(log, without=[OLD.key])} == {NEW.key}
    assert list(samples(log, family="another")) == []


def test_an_empty_log_teaches_nothing(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "none.db", read_only=True, missing_ok=True) as log:
        assert len(from_log(log, PROFILE, [], seed=0)) == 0


def test_other_tasks_make_the_prior_better(log: TuningLog) -> None:
    of = subject(NEW)
    rows = of.space.rows(10**6, np.random.default_rng(0))
    described, true = of.describe(rows), true_seconds(of, rows)
    improved = from_log(log, PROFILE, [NEW.key], seed=0).improve(described)
    before = rank_correlation(described.prior_s, true)
    assert rank_correlation(improved.prior_s, true) > before + 0.02
