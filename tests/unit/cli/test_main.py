"""The command as a whole: help, exit statuses, and one line for what cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune import cli
from autotune.cli import COMMANDS, execute
from autotune.errors import BuildError, LogError

Captured = pytest.CaptureFixture[str]


def only_error(capsys: Captured) -> str:
    """The single line on stderr; nothing may be on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as done:
        execute([command, "--help"])
    assert done.value.code == 0
    assert f"usage: autotune {command}" in capsys.readouterr().out


def test_no_command_shows_them_all(capsys: Captured) -> None:
    assert execute([]) == 2
    assert all(name in capsys.readouterr().out for name in ["tune"])
    assert execute(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_the_version_is_the_package_s(capsys: Captured) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out.strip() == autotune.__version__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "unknown command 'fly'"),
        (["query", "--top", "0"], "at least 1"),
        (["query", "--format", "xml"], "invalid choice"),
        (["tune"], "MODEL"),
        (["tune", "a.onnx", "--until-gain", "200%"], "1%"),
        (["tune", "a.onnx", "--time", "soon"], "10m"),
        (["compile", "a.onnx"], "a.onnx"),
        (["run", "a.onnx"], "--random"),
        (["zoo", "export", "tiny"], "-o"),
        (["targets", "toaster"], "unknown target 'toaster'"),
        (["tasks", "none.onnx"], "none.onnx"),
        (["tasks", "zoo:none"], "none"),
        (["tasks", "zoo:tiny", "--shape", "x"], "--shape"),
        (["tasks", "zoo:tiny", "--target", "./none.toml"], "none.toml"),
        (["bench", "none.model"], "none.model"),
        (["run", "a.onnx", "--input", "x=none.npy"], "none.npy"),
        (["tune", "zoo:tiny", "--config", "none.toml"], "none.toml"),
        (["tune", "zoo:tiny", "--device", "rpc://127.0.0.1:1"], "127.0.0.1:1"),
        (["tune", "zoo:tiny", "--device", "moon"], "moon"),
        (["tune", "zoo:tiny", "--log", "nowhere/log.db"], "nowhere"),
    ],
)
def test_input_that_cannot_be_used_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: Captured, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert execute(arguments) == 2
    assert words in only_error(capsys)


def test_a_log_that_is_no_database_is_one_line_for_every_command(
    tmp_path: Path, capsys: Captured
) -> None:
    log = tmp_path / "log.db"
    log.write_text("prose " * 99)
    for command in (["query"], ["tasks", "zoo:tiny"], ["tune", "zoo:tiny", "--trials", "1"]):
        assert execute([*command, "--log", str(log)]) == 2
        assert "not a database" in only_error(capsys)
    assert log.read_text() == "prose " * 99


def raising(error: BaseException) -> object:
    """A command module that fails."""

    class Module:
        __doc__ = "A command."

        @staticmethod
        def arguments(parser: object) -> None:
            parser.add_argument("--log", default="my.db")  # type: ignore[attr-defined]

        @staticmethod
        def run(_: object) -> None:
            raise error

    return Module


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (LogError("bad\n  log"), 2, "error: bad log\n"),
        (BuildError("no way"), 1, "error: BuildError: no way; please report this\n"),
        (KeyboardInterrupt(), 130, "interrupted; measured results are in my.db\n"),
    ],
)
def test_an_error_becomes_a_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cli.importlib, "import_module", lambda _: raising(error))
    assert execute(["tune"]) == status
    assert capsys.readouterr().err == line


def test_an_interrupt_while_a_command_is_loaded_is_one_line(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupt)
    assert execute(["tasks", "zoo:tiny"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_dry_run_that_is_interrupted_has_measured_nothing(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.tuner.api.tune_request", interrupt)
    assert execute(["tune", "zoo:tiny", "--dry-run"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "autotune", "targets"],
            stdout=gone, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
