"""`autotune machine`, and what `--machine` predicts and compiles for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import cost_model
from autotune.cli import execute
from autotune.compiler import choose
from autotune.compiler.driver import compile_request
from autotune.machine import Machine
from autotune.machine.files import load_machine
from autotune.request import CompileRequest
from autotune.target import load_target
from autotune.types import Task
from search_spaces.base import Rule
from search_spaces.params import Config
from tests.unit.machine.samples import PROFILE, RECORDED


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that describes another machine; nothing is known of this one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "there.json"
    path.write_text(json.dumps(PROFILE.to_json()))
    return str(path)


def test_a_described_machine_is_printed_beside_what_its_system_says(
    there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["machine", "--machine", there]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:40].split("  ")[0].strip(): line.split() for line in lines}
    assert rows["clock"][1:] == ["4.00", "GHz", "2.70", "GHz", "148%"]
    assert "= 52.0 cycles" in next(n for n in lines if "tdpbf16ps, tile" in n)
    assert not any("int8" in n for n in lines), "what is not there is left out"
    assert any(n.startswith("cpu     GenuineIntel-6-173-x") for n in lines)


def test_a_machine_of_an_earlier_release_is_printed_as_far_as_it_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["machine", "--machine", str(RECORDED)]) == 0
    out = capsys.readouterr().out
    assert "peak    242.3 GFLOP/s" in out
    assert out.splitlines()[-1].startswith("no micro-benchmarks")


def test_what_is_saved_describes_the_same_machine(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "saved.json")
    assert execute(["machine", "--machine", there, "--json", "-o", saved]) == 0
    assert load_machine(saved) == PROFILE
    capsys.readouterr()
    assert execute(["machine", "--machine", saved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path(there).read_text())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machine", "THERE", "-o", "x"], "-o writes what --json prints"),
        (["--machine", "THERE", "--again"], "leave out --again"),
        (["--machine", "THERE", "--json", "-o", "THERE"], "would replace"),
        (["--machine", "absent.json"], "cannot read machine file absent.json"),
        (["--target", "x87"], "unknown target 'x87'"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    there: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [there if o == "THERE" else o for o in options]
    assert execute(["machine", *given]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize("command", ["compile", "tasks", "tune"])
@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"tasks": 3}', "\0"])
def test_a_file_that_is_no_machines_is_one_line(
    command: str, content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    log = str(tmp_path / "log.db")
    assert execute([command, "zoo:tiny", "--machine", str(path), "--log", log]) == 2
    captured = capsys.readouterr()
    assert str(path) in captured.err
    assert captured.err.count("\n") == 1


def test_tasks_are_predicted_for_the_machine(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "log.db")
    assert execute(["tasks", "zoo:tiny", "--log", log, "--machine", there]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "predicted"
    assert all(row.split()[-1] in ("us", "ms", "ns") for row in rows[:-1])
    assert execute(["tasks", "zoo:tiny", "--log", log]) == 0
    assert "predicted" not in capsys.readouterr().out


def test_a_forecast_is_of_the_machine_and_measures_nothing(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.db"
    options = ["--log", str(log), "--machine", there]
    assert execute(["tune", "zoo:tiny", *options, "--dry-run"]) == 0
    assert "expected:" in capsys.readouterr().out
    assert not log.exists()
    assert not (tmp_path / "cache").exists(), "this machine was not measured"
    assert execute(["tune", "zoo:tiny", *options]) == 2
    assert "is for a forecast" in capsys.readouterr().err


def test_a_model_is_compiled_for_the_machine(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Machine] = []
    default = cost_model.default

    def listening(task: Task, machine: Machine, rule: Rule | None = None) -> Config:
        asked.append(machine)
        return default(task, machine, rule)

    monkeypatch.setattr(choose.cost_model, "default", listening)
    request = CompileRequest("zoo:tiny", machine=there, threads=2, accuracy="strict")
    model = compile_request(request)
    wanted = PROFILE.target.with_threads(2).with_accuracy("strict")
    assert model.image.target == wanted
    assert asked[-1].profile == dataclasses.replace(PROFILE, target=wanted)
    out = tmp_path / "tiny.model"
    assert execute(["compile", "zoo:tiny", "-o", str(out), "--machine", there]) == 0
    assert out.stat().st_size > 0


def test_a_target_may_be_named_beside_the_machine(there: str) -> None:
    request = CompileRequest("zoo:tiny", machine=there, target="x86-64-v3")
    assert request.wanted_target() == load_target("x86-64-v3")
    profile = request.wanted_profile()
    assert profile is not None
    assert profile.facts == PROFILE.facts
    assert profile.target == load_target("x86-64-v3")
    assert CompileRequest("zoo:tiny").wanted_profile() is None
