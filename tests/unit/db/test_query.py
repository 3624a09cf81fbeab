"""What a query gives, read straight from a file or through the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.db import query
from autotune.db.selection import Selection
from autotune.db.store import TuningLog
from autotune.errors import LogError
from autotune.measure.types import Status
from tests.unit.db.samples import matmul, record, target


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(), record(matmul(m=9)), record(status=Status.RUN_CRASH)])
    return path


def test_a_record_says_everything_a_person_asks_for(log_path: Path) -> None:
    (found,) = query.query_file(log_path, Selection(task_keys=[matmul().key]))
    assert found == {
        "record": 1,
        "task_key": matmul().key,
        "op": "matmul",
        "description": "matmul 8x16, 16x32 -> 8x32",
        "shapes": {"i0": [8, 16], "c0": [16, 32], "o0": [8, 32]},
        "target": target().key,
        "device": "board-7",
        "rule": "matmul",
        "config": {"tile": 4, "algorithm": "direct"},
        "median_s": 1e-3,
        "gflops": pytest.approx(8192 / 1e-3 / 1e9),
        "status": "OK",
        "model": "tiny",
        "created": "2026-01-02T03:04:05+00:00",
        "origin": "",
    }


def test_a_task_is_described_by_ops_and_shapes() -> None:
    assert query.describe(matmul().to_json()) == "matmul 8x16, 16x32 -> 8x32"


def test_a_file_and_the_store_answer_alike(log_path: Path) -> None:
    with TuningLog(log_path, read_only=True) as log:
        assert log.query(top=3) == query.query_file(log_path, top=3)
        assert log.query(history=True) == query.query_file(log_path, over_time=True)


def test_a_config_keeps_its_order(log_path: Path) -> None:
    assert list(query.query_file(log_path)[0]["config"]) == ["tile", "algorithm"]


def test_less_than_one_record_per_task_is_refused(log_path: Path) -> None:
    with pytest.raises(LogError, match="at least 1"):
        query.query_file(log_path, top=0)


def test_an_empty_file_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert query.query_file(tmp_path / "empty.db") == []
