"""Files whose names are no text: commands read and write them, and store what can be stored."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.db.store import TuningLog
from autotune.frontend.zoo import export_onnx
from tests.unit.db.samples import record

MODEL, LOG, OTHER, EXPORTED, PAGE = (
    os.fsdecode(name)
    for name in (b"m\xff.onnx", b"l\xff.db", b"o\xff.db", b"e\xff.jsonl", b"r\xff")
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a model and a log of one record."""
    monkeypatch.chdir(tmp_path)
    export_onnx("tiny", MODEL)
    with TuningLog(LOG) as log:
        log.append([record()])


def test_logs_are_exported_imported_and_merged() -> None:
    assert execute(("log", "export", "--log", LOG, "-o", EXPORTED)) == 0
    assert execute(("log", "import", EXPORTED, "--log", OTHER)) == 0
    with contextlib.closing(sqlite3.connect(OTHER)) as connection:
        origins = connection.execute("SELECT origin FROM records").fetchall()
    assert origins == [("e\N{REPLACEMENT CHARACTER}.jsonl",)]
    assert execute(("log", "merge", LOG, "--log", "new.db")) == 0


def test_a_report_of_them_is_a_page() -> None:
    assert execute(("report", MODEL, "--log", LOG, "-o", PAGE)) == 0
    assert "l\N{REPLACEMENT CHARACTER}.db" in Path(PAGE).read_text(encoding="utf-8")


def test_what_is_printed_is_the_name_as_it_came() -> None:
    command = [sys.executable, "-m", "autotune", "compile", MODEL, "--log", LOG, "-o", PAGE]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, env=strict, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"r\xff: ")
