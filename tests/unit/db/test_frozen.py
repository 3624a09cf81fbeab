"""Frozen logs: what is in them, and what they refuse. The contract suite tests them as stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.db.exchange import import_items
from autotune.db.frozen import FrozenLog, freeze, frozen_items, is_frozen
from autotune.db.opening import open_log
from autotune.db.selection import ALL, Selection
from autotune.db.store import TuningLog
from autotune.errors import LogError
from tests.unit.db.samples import matmul, record, target

NOW = "2026-03-01T00:00:00+00:00"


@pytest.fixture
def log(tmp_path: Path) -> TuningLog:
    log = TuningLog(tmp_path / "log.db")
    log.append([record(times=(t, 2 * t), tile=n) for n, t in enumerate((3e-3, 1e-3, 2e-3), 1)])
    log.append([record(matmul(m=9)), record(on=target(threads=2))])
    return log


def test_only_the_best_of_each_task_and_target_is_kept(log: TuningLog, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with log:
        assert freeze(log, ALL, path, NOW) == 3
        assert (
            freeze(log, Selection(target=target(threads=2).key), tmp_path / "one.json", NOW) == 1
        )
    frozen = FrozenLog(path)
    assert [r.config["tile"] for r in frozen.top(matmul().key, target(), 9)] == [2]
    assert path.stat().st_size < 6000


def test_a_frozen_record_is_the_record_but_for_its_times(log: TuningLog, tmp_path: Path) -> None:
    with log:
        freeze(log, ALL, tmp_path / "log.json", NOW)
        whole = log.best(matmul().key, target())
    slim = FrozenLog(tmp_path / "log.json").best(matmul().key, target())
    assert whole is not None
    assert slim is not None
    assert (slim.task, slim.target, slim.schedule) == (whole.task, whole.target, whole.schedule)
    assert slim.config == whole.config
    assert slim.result.times_s == (whole.result.median_s,) == (1.5e-3,)


def test_freezing_the_same_log_gives_the_same_bytes(log: TuningLog, tmp_path: Path) -> None:
    with log:
        for name in ("a.json", "b.json"):
            freeze(log, ALL, tmp_path / name, NOW)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_frozen_log_cannot_be_written(log: TuningLog, tmp_path: Path) -> None:
    with log:
        freeze(log, ALL, tmp_path / "log.json", NOW)
    with pytest.raises(LogError, match="cannot be written"):
        FrozenLog(tmp_path / "log.json").append([record()])
    with pytest.raises(LogError, match="frozen log can only be compiled against"):
        TuningLog(tmp_path / "log.json")


def test_a_frozen_log_can_be_imported(log: TuningLog, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with log, TuningLog(tmp_path / "other.db") as other:
        freeze(log, ALL, path, NOW)
        assert import_items(other, frozen_items(path), "log.json").added == 3


def test_which_files_are_frozen_logs(log: TuningLog, tmp_path: Path) -> None:
    with log:
        freeze(log, ALL, tmp_path / "log.json", NOW)
    assert is_frozen(tmp_path / "log.json")
    assert not is_frozen(tmp_path / "log.db")
    assert not is_frozen(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format":"autotune-frozen","version":9,"items":[]}', "newer release"),
        ('{"format":"autotune-frozen","version":1}', "no list of items"),
        ('{"format":"autotune-log","version":1}', "got 'autotune-log'"),
        ('{"format":"autotune-frozen",', "not JSON"),
        ('{"format":"autotune-frozen","version":1,"items":[7]}', "item 1"),
    ],
)
def test_what_is_no_frozen_log_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(LogError, match=words) as error:
        open_log(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_steps_of_another_release_are_named(log: TuningLog, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with log:
        freeze(log, ALL, path, NOW)
    path.write_text(path.read_text().replace('"step":"split"', '"step":"levitate"'))
    with pytest.raises(LogError, match=r"unknown step 'levitate'.*freeze it again"):
        open_log(path)


def test_a_folder_that_is_not_there_is_one_line(log: TuningLog, tmp_path: Path) -> None:
    with log, pytest.raises(LogError, match="cannot write"):
        freeze(log, ALL, tmp_path / "nowhere" / "log.json", NOW)


_WITHOUT = """
import sys
sys.modules["sqlalchemy"] = None
from autotune.db.opening import open_log
print(len(open_log(sys.argv[1]).query()))
"""


def test_a_frozen_log_is_read_without_sqlalchemy(log: TuningLog, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with log:
        freeze(log, ALL, path, NOW)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "3\n"
