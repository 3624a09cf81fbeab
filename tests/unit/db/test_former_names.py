"""Logs of earlier releases call steps and ops by former names: they are still the same ones."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path

import pytest

from autotune.db.exchange import Imported, import_items, log_items
from autotune.db.maintenance import stats
from autotune.db.selection import Selection
from autotune.db.store import TuningLog
from autotune.db.types import Mark, Record
from autotune.db.verify import verify, waiting
from autotune.op_names import LOGGED as LOGGED_OPS
from autotune.ops.base import OPS
from autotune.schedule import schedule_from_json
from autotune.types import Task
from tests.unit.db.samples import matmul, record, target
from tests.unit.db.test_verify import FakeRunner, fine

LOGGED = [
    {"step": "split", "loop": "i", "factor": 2, "outer": "io", "inner": "ii"},
    {"step": "write_out", "loop": "io"},
]
SCHEDULE = schedule_from_json(LOGGED)


def peeled(time_s: float, mark: Mark = Mark.OWN) -> Record:
    made = record(times=(time_s,))
    return dataclasses.replace(made, schedule=SCHEDULE, mark=mark)


def as_logged_before(path: Path) -> None:
    """Give all records of a log the text of their schedule that an earlier release wrote."""
    text = json.dumps(LOGGED, separators=(",", ":"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET schedule = ?, seal = NULL", (text,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([peeled(2e-3)])
    as_logged_before(path)
    return path


def test_a_record_reads_as_the_schedule_of_today(path: Path) -> None:
    with TuningLog(path) as log:
        (found,) = log.records(matmul().key, target())
    assert found.schedule == SCHEDULE


def test_a_repeated_measurement_counts_instead(path: Path) -> None:
    with TuningLog(path) as log:
        log.repeat([peeled(5e-3)])
        (found,) = log.records(matmul().key, target())
    assert found.result.median_s == 5e-3


def test_an_import_knows_what_is_there_under_either_name(path: Path, tmp_path: Path) -> None:
    with TuningLog(path) as log, TuningLog(tmp_path / "new.db") as new:
        former = [("", item) for item in log_items(log)]
        assert import_items(new, former, "old") == Imported(added=1)
        today = [("", item) for item in log_items(new)]
        assert import_items(log, today, "new") == Imported(present=1)
        assert import_items(new, former, "old") == Imported(present=1)


def test_what_waits_under_both_names_is_measured_once(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([peeled(2e-3, Mark.IMPORTED)])
    as_logged_before(path)
    with TuningLog(path) as log:
        log.append([peeled(3e-3, Mark.IMPORTED)])
        found = waiting(log, target())
        assert len(found) == 1
        assert verify(log, FakeRunner(fine), target(), found).ok == 1
        assert stats(log).waiting == 0


SORTED = Task.from_json({
    "anchor": 0,
    "nodes": [{"op": "leading", "inputs": ["i0"], "outputs": ["o0"], "attrs": {"count": 2}}],
    "values": [
        {"name": "i0", "dtype": "int64", "shape": [2, 5], "role": "input",
         "strides": [5, 1], "halo": [[0, 0], [0, 0]]},
        {"name": "o0", "dtype": "int64", "shape": [2, 2], "role": "output",
         "strides": [2, 1], "halo": [[0, 0], [0, 0]]},
    ],
})  # fmt: skip


def test_a_task_of_an_op_that_was_renamed_has_the_key_that_it_had() -> None:
    assert SORTED.op == "top_k"
    assert SORTED.key == "leading-9097699bd606d692"
    assert Task.from_json(SORTED.to_json()) == SORTED
    assert all(op in OPS and logged not in OPS for op, logged in LOGGED_OPS.items())


@pytest.mark.parametrize("op", ["top_k", "leading"])
def test_records_of_an_op_are_selected_by_either_name(tmp_path: Path, op: str) -> None:
    made = dataclasses.replace(record(times=(1e-3,)), task=SORTED)
    with TuningLog(tmp_path / "log.db") as log:
        log.append([made, record(times=(1e-3,))])
        assert [row["task_key"] for row in log.query(Selection(op=op))] == [SORTED.key]
        assert [r.task for r in log.nearest(SORTED, target(), 3)] == [SORTED]
