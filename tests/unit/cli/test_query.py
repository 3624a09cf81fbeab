"""`autotune query`: forms of output, filters, and nothing found."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.db.store import TuningLog
from tests.unit.db.samples import matmul, record, target


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.db"
    with TuningLog(path) as store:
        store.append([record(), record(matmul(m=9), times=(3e-3,)), record(matmul(op="add"))])
    return str(path)


def test_json_is_a_list_with_an_object_per_record(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["query", "--log", log, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["median_s"] for r in found] == [3e-3, 1e-3, 1e-3]
    wanted = {"task_key", "op", "shapes", "target", "device", "config", "median_s", "gflops",
              "status", "created"}  # fmt: skip
    assert wanted <= found[0].keys()


def test_csv_has_a_header_and_a_line_per_record(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["query", "--log", log, "--format", "csv", "--op", "matmul"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["op"] for r in rows] == ["matmul", "matmul"]
    assert json.loads(rows[0]["config"]) == {"tile": 4, "algorithm": "direct"}


def test_the_table_shows_task_time_and_rate(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["query", "--log", log]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith(matmul(m=9).key)
    assert "3.00 ms" in lines[1]
    assert "tile=4 algorithm=direct" in lines[1]


def test_a_target_filters_by_name_key_and_family(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cpu", target().key, target().family):
        assert execute(["query", "--log", log, "--format", "json", "--target", name]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(("form", "text"), [("json", "[]\n"), ("table", "")])
def test_nothing_found_is_empty_and_a_line_on_stderr(
    log: str, capsys: pytest.CaptureFixture[str], form: str, text: str
) -> None:
    assert execute(["query", "--log", log, "--op", "conv2d", "--format", form]) == 0
    out, err = capsys.readouterr()
    assert out == text
    assert err == f"nothing found in {log}\n"


def test_a_missing_log_ends_as_it_does_for_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "none.db")
    assert execute(["query", "--log", log, "--format", "json"]) == 2
    out, err = capsys.readouterr()
    assert execute(["report", "zoo:tiny", "--log", log]) == 2
    assert (out, err) == ("", capsys.readouterr().err)
    assert "does not exist" in err


def test_a_url_answers_like_a_path(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["query", "--log", log, "--format", "json"])
    by_path = capsys.readouterr().out
    execute(["query", "--log", f"sqlite:///{log}", "--format", "json"])
    assert capsys.readouterr().out == by_path


_WHAT_IS_LOADED = """
import sys
from autotune.cli import execute
execute(["query", "--log", sys.argv[1]])
heavy = {"numpy", "sqlalchemy", "onnx", "xgboost", "llvmlite", "rich", "rpyc"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def test_a_query_loads_nothing_heavy(log: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WHAT_IS_LOADED, log], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
