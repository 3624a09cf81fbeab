"""Damaged logs: any byte may be wrong, and every command is one clear line or right."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.db import files, pages, seals
from autotune.db.repair import check, repair
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.errors import LogError
from tests.unit.db.logs import model_records, write_log
from tests.unit.db.samples import matmul, record, target

Captured = pytest.CaptureFixture[str]
FLIPS = 28
MORE = 45
QUICK: tuple[tuple[str, ...], ...] = (
    ("query",),
    ("query", "--history", "--format", "json", "--shape", "1x*x*x*", "--accuracy", "normal"),
    ("log", "stats"),
    ("log", "export", "-o", "out.jsonl"),
    ("log", "freeze", "-o", "out.json"),
    ("log", "prune", "--keep", "1", "--dry-run"),
    ("log", "check"),
)
SLOW: tuple[tuple[str, ...], ...] = (
    ("tasks", "tiny.onnx"),
    ("compile", "tiny.onnx", "-o", "out.model"),
    ("log", "merge", "damaged.db", "--trust"),
    ("log", "repair"),
    ("log", "prune", "--keep", "1", "--failures"),
    ("log", "upgrade"),
    ("query", "tiny.onnx"),
    ("report", "tiny.onnx", "-o", "out.html"),
    ("tasks", "tiny.onnx", "--why"),
    ("log", "verify", "tiny.onnx"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("whole")
    records = model_records()
    write_log(folder / "whole.db", records)
    return folder / "whole.db", records


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from autotune.frontend.zoo import export_onnx

    monkeypatch.chdir(tmp_path)
    export_onnx("tiny", "tiny.onnx")
    return tmp_path


def flipped(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    changed = data[place] ^ (
        1 << draw.randrange(8) if draw.random() < 0.7 else draw.randrange(1, 256)
    )
    return data[:place] + bytes([changed]) + data[place + 1 :]


def run(capsys: Captured, *arguments: str) -> tuple[str, str]:
    """The output, and what a command that went wrong, or has a warning, says on standard error."""
    capsys.readouterr()
    try:
        status = execute(arguments)
    except LogError:
        raise
    except Exception as error:  # a user would see its traceback
        pytest.fail(f"autotune {' '.join(arguments)}: {type(error).__name__}: {error}")
    out, err = capsys.readouterr()
    assert status in (0, 2), err
    assert err.count("\n") <= 1 + (status == 0) + err.count("warning: ") + err.count("note: "), err
    assert "Traceback" not in err
    assert "please report" not in err
    return out, err


def best_of(path: Path, records: list[Record]) -> tuple[dict[str, Record | None], bool]:
    """What compiling takes of every task, and whether anything was said."""
    said: list[str] = []
    with TuningLog(path, read_only=True) as log:
        found = {r.task.key: log.best(r.task.key, r.target) for r in records}
        said += [str(row) for row in log.damage.rows()] + list(log.damage.take_notes())
    return found, bool(said)


def plain(record: Record | None) -> Record | None:
    return record and dataclasses.replace(record, id=None)


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, FLIPS), *(pytest.param(n, MORE, marks=pytest.mark.slow) for n in range(1, 10))],
)
def test_a_flipped_byte_is_one_line_and_never_a_wrong_schedule(
    whole: tuple[Path, list[Record]], folder: Path, capsys: Captured, seed: int, count: int
) -> None:
    source, records = whole
    data = source.read_bytes()
    true, _ = best_of(source, records)
    asked = ("query", "--format", "json")
    told, _ = run(capsys, *asked, "--log", str(source))
    draw = random.Random(seed)
    path = folder / "damaged.db"
    for number in range(count):
        for leftover in folder.glob("damaged.db*"):
            leftover.unlink()
        path.write_bytes(flipped(data, draw))
        for command in QUICK if number % 8 == 0 else (QUICK[number % len(QUICK)],):
            run(capsys, *command, "--log", "damaged.db")
        out, err = run(capsys, *asked, "--log", "damaged.db")
        assert out == told or err, number
        lines = [""]
        try:
            found, said = best_of(path, records)
        except LogError as error:
            lines = str(error).splitlines()
        else:
            for key, best in found.items():
                assert plain(best) in [None, *map(plain, records)], key
                assert said or plain(best) == plain(true[key]), (number, key)
        assert len(lines) == 1
        if number % 8 == 0:
            command = SLOW[(number // 8 + seed * FLIPS) % len(SLOW)]
            run(capsys, *command, "--log", "merged.db" if "merge" in command else "damaged.db")


@pytest.mark.parametrize("seed", range(6))
def test_what_is_repaired_is_whole_and_loses_little(
    whole: tuple[Path, list[Record]], tmp_path: Path, seed: int
) -> None:
    source, records = whole
    path = tmp_path / "log.db"
    data, draw = source.read_bytes(), random.Random(seed)
    for _ in range(3):
        data = flipped(data, draw)
    path.write_bytes(data)
    done = repair(str(path))
    kept, damage = check(str(path))
    assert not len(damage)
    if done is None:
        return
    assert Path(done.backup).read_bytes() == data
    pages_hit = 3 * 4  # a page has up to three records, a task's row takes four with it
    assert kept == done.records >= len(records) + 2 - pages_hit
    with TuningLog(path) as log:
        log.append([records[0]])
        good = [plain(r) for r in records]
        for one in records:
            for found in log.records(one.task.key, one.target):
                assert plain(found) in good


@pytest.mark.parametrize("part", [slice(0, 100), slice(100, 4096), slice(4096, 8192)])
def test_a_page_that_is_all_noise_costs_what_was_on_it(
    whole: tuple[Path, list[Record]], tmp_path: Path, part: slice
) -> None:
    source, records = whole
    path = tmp_path / "log.db"
    data = bytearray(source.read_bytes())
    noise = random.Random(0).randbytes(part.stop - part.start)
    data[part] = noise if part.start else b"SQLite format 3\0" + noise[16:]
    path.write_bytes(data)
    done = repair(str(path))
    assert done is not None
    assert done.records >= len(records) - 8
    assert not len(check(str(path))[1])


def test_a_truncated_file_keeps_its_first_pages(
    whole: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    source, _ = whole
    path = tmp_path / "log.db"
    path.write_bytes(source.read_bytes()[: source.stat().st_size * 9 // 10])
    done = repair(str(path))
    assert done is not None
    assert done.records > 0
    assert not len(check(str(path))[1])


def changed(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET schedule = replace(schedule, '4', '5') WHERE id = 1",
        "UPDATE records SET median_s = 1e-9 WHERE id = 1",
        "UPDATE records SET times = '[1e-9]' WHERE id = 1",
        "UPDATE records SET schedule = '{{' WHERE id = 1",
        "UPDATE records SET task_key = x'ff' WHERE id = 1",
        "UPDATE records SET config = cast(x'ff' AS TEXT) WHERE id = 1",
        "UPDATE records SET mark = 0 WHERE id = 3",
        "UPDATE records SET created = 7 WHERE id = 1",
    ],
)
def test_a_changed_record_is_skipped_and_named(
    tmp_path: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.db"
    imported = dataclasses.replace(record(times=(1e-6,)), mark=1)
    with TuningLog(path) as log:
        log.append([record(times=(1e-3,)), record(times=(2e-3,)), imported])
    changed(path, statement)
    number = statement[-1]
    expected = {"1": 2e-3, "3": 1e-3}[number]
    with caplog.at_level(logging.WARNING), TuningLog(path, read_only=True) as log:
        found = [r["median_s"] for r in log.query()]
        best = log.best(matmul().key, target())
        log.records(matmul().key, target())
    assert best is not None
    assert best.result.median_s == expected
    assert found == [expected]
    whole_ones, damage = check(str(path))
    assert (whole_ones, [(row.table, row.key) for row in damage.rows()]) == (
        2,
        [("records", number)],
    )
    if "task_key" not in statement:  # its index entry is elsewhere: nobody comes across it
        assert len(caplog.messages) == 1
        assert f"1 damaged row skipped (records {number})" in caplog.text


def test_the_command_lists_and_mends(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(), record(matmul(m=9))])
    changed(path, "UPDATE records SET times = '[1e-9]' WHERE id = 1")
    assert execute(["log", "check", "--log", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{path}: 1 record whole",
        "damaged: records 1: its checksum does not fit",
    ]
    assert f"tuning log {path}: 1 damaged part; `autotune log repair" in err
    assert execute(["query", "--log", str(path)]) == 0
    assert "warning: " in capsys.readouterr().err
    assert execute(["log", "repair", "--log", str(path)]) == 0
    assert f"1 record kept; as it was: {path}.damaged\n" in capsys.readouterr().out
    assert execute(["log", "check", "--log", str(path)]) == 0
    assert execute(["log", "repair", "--log", str(path)]) == 0
    assert "nothing is damaged" in capsys.readouterr().out


def test_a_task_whose_description_is_whole_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
    changed(path, "UPDATE tasks SET flops = flops + 1")
    done = repair(str(path))
    assert done is not None
    assert done.records == 1


def test_a_writer_puts_a_damaged_task_right(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
    changed(path, "UPDATE tasks SET json = '{}'")
    with TuningLog(path) as log:
        assert log.best(matmul().key, target()) is None
        log.append([record(times=(1e-5,))])
        best = log.best(matmul().key, target())
    assert best is not None
    assert best.result.median_s == 1e-5


def test_pages_are_read_like_the_database_reads_them(
    whole: tuple[Path, list[Record]],
) -> None:
    source, _ = whole
    connection = sqlite3.connect(source)
    rows = connection.execute("SELECT * FROM records").fetchall()
    connection.close()
    carved = {number: values for number, values in pages.rows(source) if len(values) > 20}
    assert {row[0] for row in rows} == carved.keys()
    for row in rows:
        assert list(row[1:]) == carved[row[0]][1:]


def test_every_column_but_the_number_is_sealed() -> None:
    from autotune.db.schema import METADATA

    for table, columns in seals.COLUMNS.items():
        own = {c.name for c in METADATA.tables[table].columns}
        assert own - {"id", "mark", "seal"} == set(columns)


def test_a_log_that_is_damaged_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(matmul(m=m)) for m in range(1, 40)])
    data = bytearray(path.read_bytes())
    data[8192:12288] = bytes(4096)
    path.write_bytes(data)
    before = path.read_bytes()
    with pytest.raises(LogError, match="autotune log repair"):
        TuningLog(path)
    assert path.read_bytes() == before
    assert files.trouble(path)


def test_export_leaves_damaged_records_out(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(), record(matmul(m=9))])
    changed(path, "UPDATE records SET config = '[' WHERE id = 2")
    assert execute(["log", "export", "--log", str(path)]) == 0
    out = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(item.get("kind") == "record" for item in out) == 1


def test_an_old_log_is_repaired_too(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "log_v5.db"
    path = Path(shutil.copy(fixture, tmp_path / "log.db"))
    data = bytearray(path.read_bytes())
    data[data.index(b"records_best") - 40] ^= 0xFF
    path.write_bytes(data)
    if files.trouble(path):
        done = repair(str(path))
        assert done is not None
        assert done.records >= 4
