"""Figures of a log, and what pruning takes and leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.db import files
from autotune.db.maintenance import Pruning, prune, stats
from autotune.db.selection import ALL, Selection
from autotune.db.store import TuningLog
from autotune.db.types import Mark
from autotune.measure.types import Status
from tests.unit.db.samples import matmul, record, target

IMPORTED = dataclasses.replace(record(tile=64), mark=Mark.IMPORTED, origin="x.db")


@pytest.fixture(params=["file", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> TuningLog:
    new: Callable[[], str] = lambda: str(tmp_path / "log.db")  # noqa: E731
    if request.param == "postgres":
        new = request.getfixturevalue("new_database")
    log = TuningLog(new())
    log.append([record(times=(t,)) for t in (5e-3, 1e-3, 3e-3, 2e-3)])
    log.append([record(status=Status.RUN_CRASH), record(matmul(m=9), times=(9e-3,)), IMPORTED])
    log.append([record(matmul(op="add"), on=target(threads=2))])
    return log


def test_stats_count_by_every_property(log: TuningLog) -> None:
    with log:
        found = stats(log)
    assert (found.records, found.tasks, found.waiting, found.schema) == (
        8,
        3,
        1,
        files.SCHEMA_VERSION,
    )
    assert found.statuses == {"OK": 7, "RUN_CRASH": 1}
    assert found.ops == {"matmul": 7, "add": 1}
    assert found.targets == {target().key: 7, target(threads=2).key: 1}
    assert found.devices == {"board-7": 8}
    assert found.origins == {"x.db": 1}
    assert found.first == found.last == "2026-01-02T03:04:05+00:00"
    assert found.size_bytes > 0


def test_a_missing_log_has_no_figures(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "none.db", read_only=True, missing_ok=True) as log:
        assert stats(log).records == 0
        assert prune(log, ALL, Pruning(keep=1), dry_run=True) == 0


def test_the_fastest_of_each_task_and_target_stay(log: TuningLog) -> None:
    with log:
        assert prune(log, ALL, Pruning(keep=2)) == 2
        left = log.records(matmul().key, target())
        assert [r.result.median_s for r in left if r.result.times_s] == [1e-3, 2e-3]
        assert stats(log).records == 6


def test_what_was_measured_again_goes_with_the_slower_ones(log: TuningLog) -> None:
    with log:
        log.repeat([record(times=(4e-3,))])
        assert stats(log).records == 9
        assert prune(log, ALL, Pruning(failures=True, imported=True)) == 2
        assert prune(log, ALL, Pruning(keep=9)) == 4
        left = log.records(matmul().key, target())
        assert [r.result.median_s for r in left] == [4e-3]


def test_failures_and_imported_records_go_when_asked(log: TuningLog) -> None:
    with log:
        assert prune(log, ALL, Pruning(failures=True)) == 1
        assert prune(log, ALL, Pruning(imported=True)) == 1
        assert stats(log).statuses == {"OK": 6}
        assert stats(log).waiting == 0


def test_only_what_is_selected_goes(log: TuningLog) -> None:
    with log:
        assert prune(log, Selection(op="add"), Pruning(keep=1, failures=True)) == 0
        assert prune(log, Selection(since="2027-01-01"), Pruning(failures=True)) == 0
        assert prune(log, Selection(shape=(8, 16)), Pruning(failures=True)) == 1


def test_a_dry_run_deletes_nothing(log: TuningLog) -> None:
    with log:
        assert prune(log, ALL, Pruning(keep=1), dry_run=True) == 3
        assert stats(log).records == 8


def test_a_log_can_be_written_after_pruning_and_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(tile=n) for n in range(500)])
        before = stats(log).size_bytes
        prune(log, ALL, Pruning(keep=1))
        log.append([record(times=(1e-6,))])
        assert len(log.records(matmul().key, target())) == 2
        assert stats(log).size_bytes < before / 3
