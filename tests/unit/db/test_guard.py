"""A log's file at work: deleted, replaced, cut, on a full disk. Nothing measured is lost."""

from __future__ import annotations

import cProfile
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune
from autotune.db import files, guard, place
from autotune.db.store import TuningLog
from autotune.errors import LogError
from autotune.tuner.events import Event, TrialDone
from tests.unit.db.samples import matmul, record, target


def medians(path: Path) -> list[float]:
    with TuningLog(path, read_only=True) as log:
        return [r.result.median_s for r in log.records(matmul().key, target())]


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    with TuningLog(other) as log:
        log.append([record(times=(9.0,))])
    other.replace(path)


def overwrite(path: Path) -> None:
    other = path.with_name("other.db")
    with TuningLog(other) as log:
        log.append([record(times=(9.0,))])
    path.write_bytes(other.read_bytes())


def truncate(path: Path) -> None:
    path.write_bytes(b"")


def wait() -> None:
    """Until the writer looks after its file again."""
    time.sleep(2 * guard.LOOKED_S)


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (delete, "was deleted"),
        (delete_all, "was deleted"),
        (replace, "was replaced by another file"),
        (overwrite, "was changed by another program"),
        (truncate, "was changed by another program"),
        (remove_folder, "was deleted"),
    ],
)
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_file_taken_away_is_an_error_and_everything_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], words: str,
    *, checkpoint: bool,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "log.db"
    log = TuningLog(path)
    log.append([record(times=(1.0,))])
    log.append([record(times=(2.0,))])
    if checkpoint:
        log.checkpoint()
    harm(path)
    wait()
    with pytest.raises(LogError, match=words) as error:
        log.append([record(times=(3.0,))])
    log.close()
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    (saved,) = tmp_path.rglob("log.rescued.db")
    assert str(saved) in str(error.value)
    assert medians(saved) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("harm", [delete, replace, overwrite])
def test_a_file_taken_away_amid_a_burst_ends_it_soon_and_nothing_is_lost(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path, told = tmp_path / "log.db", [1.0]
    log = TuningLog(path)
    log.append([record(times=(1.0,))])
    harm(path)
    start = time.perf_counter()

    def burst() -> None:
        while time.perf_counter() - start < 60:
            told.append(told[-1] + 1)
            log.append([record(times=(told[-1],))])

    with pytest.raises(LogError, match="while it was written"):
        burst()
    log.close()
    assert len(told) <= 500  # 50 ms of them on an idle machine
    assert medians(tmp_path / "log.rescued.db") == told


def test_a_burst_of_records_looks_after_the_file_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    trouble = place.Place.trouble

    def counted(own: place.Place) -> str:
        nonlocal looks
        looks += 1
        return trouble(own)

    with TuningLog(tmp_path / "log.db") as log:
        log.append([record()])
        monkeypatch.setattr(place.Place, "trouble", counted)
        start = time.perf_counter()
        for _ in range(200):
            log.append([record()])
        assert looks <= 1 + (time.perf_counter() - start) / guard.LOOKED_S


def test_appending_a_record_takes_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LOOKED_S", 60.0)
    one = record()
    with TuningLog(tmp_path / "log.db") as log:
        log.append([one])
        log.append([one])
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(200):
            log.append([one])
        profile.disable()
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls / 200 < 112  # 87 before rows had seals and files a guard, then 128


def write_and(then: Callable[[], None], path: Path) -> None:
    with TuningLog(path) as log:
        log.append([record()])
        then()


def test_a_file_taken_away_is_noticed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with pytest.raises(LogError, match="was deleted"):
        write_and(path.unlink, path)
    assert len(medians(tmp_path / "log.rescued.db")) == 1


def test_an_interrupted_run_says_that_its_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    def interrupt() -> None:
        path.unlink()
        raise KeyboardInterrupt

    with pytest.raises(LogError, match="was deleted"):
        write_and(interrupt, path)


def test_the_log_that_took_the_place_keeps_its_wal(tmp_path: Path) -> None:
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    log = TuningLog(path)
    log.append([record(times=(1.0,))])
    for name in ("log.db", "log.db-wal", "log.db-shm", "log.db.lock"):
        (tmp_path / name).unlink()
    second = TuningLog(other)
    second.append([record(times=(9.0,))])
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
    with pytest.raises(LogError, match="replaced"):
        log.close()
    second.close()
    assert medians(path) == [9.0]


def test_a_removed_wal_ends_the_run_with_everything_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = TuningLog(path)
    log.append([record(times=(1.0,))])
    log.append([record(times=(2.0,))])
    (tmp_path / "log.db-wal").unlink()
    wait()
    with pytest.raises(LogError, match=r"lost its log\.db-wal"):
        log.append([record(times=(3.0,))])
    log.close()
    assert medians(path) == [1.0, 2.0, 3.0]


def test_a_touched_file_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
        os.utime(path)
        log.append([record()])
    assert len(medians(path)) == 2


def test_a_copy_of_the_one_file_is_whole_after_a_round(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    with TuningLog(path) as log:
        for _ in range(5):
            log.append([record()])
        log.checkpoint()
        copy.write_bytes(path.read_bytes())
    assert len(medians(copy)) == 5


def test_a_long_run_keeps_its_wal_short(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        for _ in range(1500):
            log.append([record()])
        assert (tmp_path / "log.db-wal").stat().st_size < 16 << 20
        assert path.stat().st_size > 500_000


_FULL = """
import resource, sys
from autotune.db.store import TuningLog
from tests.unit.db.samples import record
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = TuningLog(sys.argv[1])
log.append([record(times=(1.0,))])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
count = 1
try:
    while True:
        log.append([record(times=(1.0,))])
        count += 1
except Exception as error:
    print(type(error).__name__, error)
print(count)
"""


def test_what_a_full_disk_does_not_take_is_saved_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    message, count = done.stdout.splitlines()
    assert message.startswith("LogError tuning log")
    assert "1 record that it did not take: saved in" in message
    assert len(medians(path)) == int(count)
    assert medians(tmp_path / "log.rescued.db") == [1.0]
    assert not files.trouble(path)


def test_a_failed_import_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from autotune.cli import execute

    good = tmp_path / "good.db"
    with TuningLog(good) as log:
        log.append([record()])
    execute(["log", "export", "--log", str(good)])
    lines = capsys.readouterr().out
    for name, content in (("text", "hello\n"), ("cut", lines[:-20]), ("empty", "")):
        (tmp_path / name).write_text(content)
        made = tmp_path / f"{name}.db"
        assert execute(["log", "import", str(tmp_path / name), "--log", str(made)]) == 2
        assert not list(tmp_path.glob(f"{name}.db*"))
    assert capsys.readouterr().err.count("\n") == 3


@pytest.mark.parametrize(
    "command",
    [
        ("query",), ("log", "stats"), ("log", "check"), ("log", "repair"), ("log", "export"),
        ("log", "prune", "--failures"), ("log", "upgrade"), ("log", "freeze", "-o", "f.json"),
        ("report", "zoo:tiny"), ("log", "merge", "good.db"), ("tune", "zoo:tiny", "--trials", "1"),
        ("tasks", "zoo:tiny", "--why"), ("compile", "zoo:tiny", "-o", "x.model"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["foreign", "noise", "folder", "header"])
def test_what_is_no_log_is_one_line_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...], kind: str,
) -> None:  # fmt: skip
    from autotune.cli import execute

    monkeypatch.chdir(tmp_path)
    with TuningLog("good.db") as log:
        log.append([record()])
    path = tmp_path / "x.db"
    if kind == "foreign":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE people (name TEXT)")
        connection.close()
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"SQLite format 3\0" + bytes(84) if kind == "header" else bytes(9999))
    before = None if kind == "folder" else path.read_bytes()
    assert execute([*command, "--log", "x.db"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert before is None or path.read_bytes() == before


def test_repair_waits_for_no_writer(tmp_path: Path) -> None:
    from autotune.db.repair import repair

    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
        log.checkpoint()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE records SET seed = 7")
        connection.close()
        with pytest.raises(LogError, match="another process is writing"):
            repair(str(path))


def test_a_tuning_run_whose_log_is_deleted_ends_and_saves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = 0

    def on_event(event: Event) -> None:
        nonlocal done
        if isinstance(event, TrialDone):
            done += 1
            if done == 3:
                Path("del.db").unlink()

    with pytest.raises(LogError, match=r"del\.db: it was deleted while it was written"):
        autotune.tune("zoo:tiny", log="del.db", trials=30, on_event=on_event)
    assert done == 3
    with TuningLog("del.rescued.db", read_only=True) as log, log.reading() as connection:
        assert connection is not None
        count = connection.exec_driver_sql("SELECT COUNT(*) FROM records").scalar()
    assert count > done  # and those that chose layouts
