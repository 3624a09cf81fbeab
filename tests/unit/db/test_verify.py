"""Imported records measured here: what counts then, and what keeps waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.db.maintenance import stats
from autotune.db.selection import ALL, Selection
from autotune.db.store import TuningLog
from autotune.db.types import Mark, Record
from autotune.db.verify import Verified, verify, waiting
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.schedule.loops.nest import Split
from autotune.types import Task
from tests.unit.db.samples import matmul, record, target

HERE = "this-board"


class FakeRunner:
    """Gives every request the status and time that `fate` says by the split's factor."""

    def __init__(self, fate: Callable[[int], MeasureResult]) -> None:
        self.fate = fate
        self.asked: list[MeasureRequest] = []

    def profile(self) -> DeviceProfile:
        raise AssertionError("verification needs no profile")

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        self.asked += requests
        steps = [request.schedule[0] for request in requests]
        results = tuple(self.fate(step.factor) for step in steps if isinstance(step, Split))
        for place, result in enumerate(results):
            assert on_result is not None
            on_result(place, result)
        return results

    def close(self) -> None:
        """Nothing is open."""


def fine(factor: int) -> MeasureResult:
    return MeasureResult(status=Status.OK, times_s=(factor * 1e-3,), device=HERE)


def imported(tile: int, time_s: float, task: Task | None = None, threads: int = 1) -> Record:
    made = record(task, on=target(threads=threads), times=(time_s,), tile=tile)
    return dataclasses.replace(made, mark=Mark.IMPORTED, origin="x.db")


@pytest.fixture
def log(tmp_path: Path) -> TuningLog:
    log = TuningLog(tmp_path / "log.db")
    log.append([imported(4, 1e-6), imported(2, 2e-6), imported(8, 3e-6)])
    return log


def test_what_was_measured_here_wins_by_its_time_here(log: TuningLog) -> None:
    with log:
        log.append([record(tile=16, times=(5e-3,))])
        done = verify(log, FakeRunner(fine), target(), waiting(log, target()))
        assert done == Verified(ok=3)
        best = log.best(matmul().key, target())
        assert best is not None
        assert (best.config["tile"], best.result.median_s) == (2, 2e-3)
        assert (best.result.device, best.origin, best.mark) == (HERE, "x.db", Mark.OWN)
        assert best.created != "2026-01-02T03:04:05+00:00"
        assert len(log.records(matmul().key, target())) == 4


def test_nothing_waits_afterwards(log: TuningLog) -> None:
    with log:
        runner = FakeRunner(fine)
        for _ in range(2):
            verify(log, runner, target(), waiting(log, target()))
        assert len(runner.asked) == 3
        assert stats(log).waiting == 0
        assert stats(log).records == 6


def test_a_wrong_result_here_is_a_failure_and_never_best(log: TuningLog) -> None:
    def wrong(_: int) -> MeasureResult:
        return MeasureResult(status=Status.WRONG_RESULT, error="check: off by 1", device=HERE)

    with log:
        assert verify(log, FakeRunner(wrong), target(), waiting(log, target())).failed == 3
        assert log.best(matmul().key, target()) is None
        statuses = {r.result.status for r in log.records(matmul().key, target())}
        assert statuses == {Status.WRONG_RESULT}
        assert waiting(log, target()) == []


def test_a_lost_device_leaves_the_mark(log: TuningLog) -> None:
    def lost(factor: int) -> MeasureResult:
        return MeasureResult(status=Status.DEVICE_LOST) if factor == 4 else fine(factor)

    with log:
        done = verify(log, FakeRunner(lost), target(), waiting(log, target()))
        assert done == Verified(ok=2, lost=1)
        assert [r.config["tile"] for r in waiting(log, target())] == [4]


def test_the_fastest_elsewhere_are_measured_if_only_some_are(log: TuningLog) -> None:
    with log:
        log.append([imported(32, 1e-6, matmul(m=9))])
        found = waiting(log, target(), top=1)
        assert sorted(r.config["tile"] for r in found) == [4, 32]  # type: ignore[type-var]


def test_a_schedule_is_measured_once_whoever_sent_it(log: TuningLog) -> None:
    with log:
        log.append([dataclasses.replace(imported(4, 5e-6), origin="y.db")])
        runner = FakeRunner(fine)
        verify(log, runner, target(), waiting(log, target()))
        assert len(runner.asked) == 3
        assert stats(log).waiting == 0


def test_other_targets_and_tasks_keep_waiting(log: TuningLog) -> None:
    with log:
        log.append([imported(4, 1e-6, threads=2), imported(4, 1e-6, matmul(op="add"))])
        verify(log, FakeRunner(fine), target(), waiting(log, target(), Selection(op="add")))
        assert stats(log).waiting == 4
        verify(log, FakeRunner(fine), target(), waiting(log, target(), ALL))
        assert stats(log).waiting == 1


def test_each_result_is_told_with_its_imported_record(log: TuningLog) -> None:
    told: list[tuple[float, float]] = []
    with log:
        verify(
            log,
            FakeRunner(fine),
            target(),
            waiting(log, target(), top=1),
            on_verified=lambda old, new: told.append((old.result.median_s, new.result.median_s)),
        )
    assert told == [(1e-6, 4e-3)]
