"""`autotune log`: its actions by their texts; what they do is tested in tests/unit/db."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

import autotune
from autotune.cli import execute
from autotune.cli.log import ACTIONS
from autotune.compiler.driver import partition_with
from autotune.db.frozen import FrozenLog
from autotune.db.store import TuningLog
from autotune.measure.types import Status
from autotune.request import CompileRequest
from autotune.target import host_target, load_target
from tests.unit.db.samples import matmul, record, target

Captured = pytest.CaptureFixture[str]
FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.db"
    with TuningLog(path) as store:
        store.append([record(times=(2e-3,), tile=2), record(times=(1e-3,), tile=4)])
        store.append([record(matmul(m=9), times=(3e-3,)), record(status=Status.RUN_CRASH)])
    return str(path)


def out_of(capsys: Captured, *arguments: str, status: int = 0) -> str:
    """What a command prints; on both streams, as a terminal shows them."""
    assert execute(["log", *arguments]) == status
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_explains_itself(action: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as done:
        execute(["log", action, "--help"])
    assert done.value.code == 0
    assert f"usage: autotune log {action}" in capsys.readouterr().out


def test_export_writes_lines_to_standard_output(log: str, capsys: Captured) -> None:
    assert execute(["log", "export", "--log", log, "--op", "matmul"]) == 0
    out, err = capsys.readouterr()
    items = [json.loads(line) for line in out.splitlines()]
    assert items[0]["format"] == "autotune-log"
    assert sum(item.get("kind") == "record" for item in items) == 4
    assert err == "4 records exported\n"


def test_a_failed_export_leaves_no_file(log: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "nowhere" / "x.jsonl"
    assert "cannot write" in out_of(capsys, "export", "--log", log, "-o", str(out), status=2)
    assert not out.parent.exists()


def test_export_and_import(log: str, tmp_path: Path, capsys: Captured) -> None:
    lines, other = str(tmp_path / "x.jsonl"), str(tmp_path / "other.db")
    out_of(capsys, "export", "--log", log, "-o", lines)
    out = out_of(capsys, "import", lines, "--log", other)
    assert out.startswith("x.jsonl: 4 records added, 0 were there already\n")
    assert "autotune log verify" in out
    with TuningLog(other) as store:
        assert store.query() == []


def test_import_from_standard_input(
    log: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(["log", "export", "--log", log])
    monkeypatch.setattr("sys.stdin", io.StringIO(capsys.readouterr().out))
    out = out_of(capsys, "import", "-", "--trust", "--log", str(tmp_path / "other.db"))
    assert out == "standard input: 4 records added, 0 were there already\n"


def test_merge_takes_several_logs(log: str, tmp_path: Path, capsys: Captured) -> None:
    second = tmp_path / "second.db"
    with TuningLog(second) as store:
        store.append([record(matmul(m=10))])
    out = out_of(capsys, "merge", log, str(second), "--log", str(tmp_path / "all.db"))
    assert "log.db: 4 records added" in out
    assert "second.db: 1 records added" in out


def test_a_log_is_not_merged_into_itself(log: str, capsys: Captured) -> None:
    again = str(Path(log).parent / "." / "x" / ".." / "log.db")
    for name in (log, again, f"sqlite:///{log}"):
        assert "name another one" in out_of(capsys, "merge", name, "--log", log, status=2)


def test_stats_show_counts_by_property(log: str, capsys: Captured) -> None:
    out = out_of(capsys, "stats", "--log", log)
    assert "4 records of 2 tasks" in out
    assert "RUN_CRASH" in out
    assert "board-7" in out
    assert target().key in out


def test_prune_needs_to_be_told_what(log: str, capsys: Captured) -> None:
    assert "say what to delete" in out_of(capsys, "prune", "--log", log, status=2)
    assert out_of(capsys, "prune", "--keep", "1", "--dry-run", "--log", log) == (
        "1 record would go\n"
    )
    out = out_of(capsys, "prune", "--keep", "1", "--failures", "--log", log)
    assert out == "2 records deleted\n"


def test_an_old_log_is_upgraded(tmp_path: Path, capsys: Captured) -> None:
    old = str(shutil.copy(FIXTURES / "log_v1.db", tmp_path / "old.db"))
    assert "autotune log upgrade" in out_of(capsys, "stats", "--log", old, status=2)
    assert out_of(capsys, "upgrade", "--log", old) == f"{old}: schema 6\n"
    assert "5 records" in out_of(capsys, "stats", "--log", old)


@pytest.mark.parametrize(
    "action",
    ["export", "stats", "upgrade", "verify", "prune --failures", "prune --failures --dry-run"],
)
def test_a_missing_log_is_one_line(action: str, tmp_path: Path, capsys: Captured) -> None:
    path = str(tmp_path / "none.db")
    out = out_of(capsys, *action.split(), "--log", path, status=2)
    assert out == f"error: tuning log {path}: does not exist; `autotune tune` makes one\n"
    assert not Path(path).exists()


def test_an_exported_log_is_no_log_and_says_what_it_is(
    log: str, tmp_path: Path, capsys: Captured
) -> None:
    file = str(tmp_path / "log.jsonl")
    out_of(capsys, "export", "--log", log, "-o", file)
    assert execute(["query", "--log", file]) == 2
    assert "`autotune log import` adds its records" in capsys.readouterr().err


def test_history_by_date_and_device(log: str, capsys: Captured) -> None:
    def found(*options: str) -> list[float]:
        assert execute(["query", "--log", log, "--format", "json", *options]) == 0
        return [r["median_s"] for r in json.loads(capsys.readouterr().out)]

    assert found("--history") == [3e-3, 2e-3, 1e-3]
    assert found("--history", "--shape", "8x16") == [2e-3, 1e-3]
    assert found("--shape", "9x*") == [3e-3]
    assert found("--device", "board-8") == found("--since", "2026-01-03") == []
    assert found("--until", "2026-01-02") == [3e-3, 1e-3]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_model_is_frozen_in_one_precision(
    precision: str, tmp_path: Path, capsys: Captured
) -> None:
    path = str(tmp_path / "log.db")
    on = host_target().with_precision(precision)
    tasks = partition_with(CompileRequest("zoo:tiny"), on, None).weights()
    with TuningLog(path) as store:
        store.append([record(task, on=o) for task in tasks for o in (on, host_target())])
    frozen = str(tmp_path / "tiny.json")
    options = ("--precision", precision, "--log", path, "-o", frozen)
    assert f"{len(tasks)} records" in out_of(capsys, "freeze", "zoo:tiny", *options)
    log = FrozenLog(Path(frozen))
    assert all(log.best(task.key, on) for task in tasks)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_model_s_tasks_of_short_tensors_are_found(
    precision: str, tmp_path: Path, capsys: Captured
) -> None:
    path = str(tmp_path / "log.db")
    on = load_target("sm_90a").with_precision(precision)
    tasks = partition_with(CompileRequest("zoo:tiny"), on, None).weights()
    with TuningLog(path) as store:
        store.append([record(task, on=on) for task in tasks])
    found = ("zoo:tiny", "--precision", precision, "--log", path, "-o", str(tmp_path / "found"))
    assert f"{len(tasks)} records" in out_of(capsys, "export", *found)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--since", "soon"], "expected a date"),
        (["--shape", "1xa"], "expected a shape"),
        (["--shape", "x=1x3"], "name the MODEL"),
        (["--precision", "int4"], "invalid choice: 'int4'"),
        (["--shape", "1x3", "--shape", "1x4"], "one shape of a tensor"),
    ],
)
def test_filters_that_cannot_be_used(
    log: str, option: list[str], words: str, capsys: Captured
) -> None:
    assert execute(["query", "--log", log, *option]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_shipped_log_is_verified_frozen_and_compiled_against(
    tmp_path: Path, cache_home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    autotune.tune("zoo:tiny", log="there.db", trials=12)
    out_of(capsys, "export", "zoo:tiny", "--log", "there.db", "-o", "there.jsonl")
    out_of(capsys, "import", "there.jsonl", "--log", "here.db")
    assert "verified" in out_of(capsys, "verify", "zoo:tiny", "--top", "1", "--log", "here.db")
    out = out_of(capsys, "freeze", "zoo:tiny", "--log", "here.db", "-o", "tiny.json")
    assert out.startswith("tiny.json: ")
    model = autotune.compile("zoo:tiny", log="tiny.json")
    sources = [kernel.source for kernel in model.image.kernels]
    assert sources.count("record") == len(sources)
    assert execute(["tasks", "zoo:tiny", "--log", "tiny.json"]) == 0
    assert "in all" in capsys.readouterr().out
