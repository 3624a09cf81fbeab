"""`autotune compile` without -o: the model's name with another ending, beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.frontend.zoo import export_onnx
from autotune.runtime import is_artifact

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and a model in a folder of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    export_onnx("tiny", "models/tiny.v2.onnx")
    return tmp_path


def made(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_artifact_lies_beside_the_model_and_that_is_said(
    folder: Path, capsys: Captured
) -> None:
    assert execute(["compile", "models/tiny.v2.onnx"]) == 0
    assert made(folder) == ["models/tiny.v2.model", "models/tiny.v2.onnx"]
    assert is_artifact("models/tiny.v2.model")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("models/tiny.v2.model: ")
    assert lines[1] == "written to models/tiny.v2.model, since no -o names another file"


def test_a_bundled_model_s_lies_in_the_current_folder(folder: Path, capsys: Captured) -> None:
    assert execute(["compile", "zoo:tiny"]) == 0
    assert made(folder) == ["models/tiny.v2.onnx", "tiny.model"]
    assert "written to tiny.model" in capsys.readouterr().out


def test_a_named_file_is_said_once(capsys: Captured) -> None:
    assert execute(["compile", "zoo:tiny", "-o", "mine"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_an_earlier_artifact_is_replaced_as_with_a_name(folder: Path) -> None:
    (folder / "tiny.model").write_text("of yesterday")
    assert execute(["compile", "zoo:tiny"]) == 0
    assert is_artifact("tiny.model")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny.model"], "-o tiny.model would replace tiny.model, which is read; choose another"),
        (["zoo:tiny", "--log", "tiny.model"], "-o tiny.model would replace tiny.model, which is"),
        (["none.onnx"], "there is no file 'none.onnx'"),
        (["zoo:none"], "there is no zoo model 'none'"),
        (["zoo:"], "there is no zoo model ''"),
        ([""], "does not exist; expected an .onnx, .tflite or .pt2 file"),
        (["models"], "has another ending"),
    ],
)
def test_what_cannot_be_compiled_leaves_everything(
    arguments: list[str], words: str, folder: Path, capsys: Captured
) -> None:
    assert execute(["compile", "zoo:tiny"]) == 0
    before = {name: (folder / name).read_bytes() for name in made(folder)}
    capsys.readouterr()
    assert execute(["compile", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
    assert {name: (folder / name).read_bytes() for name in made(folder)} == before


def test_a_folder_that_cannot_be_written_is_named(folder: Path, capsys: Captured) -> None:
    (folder / "tiny.model").mkdir()
    assert execute(["compile", "zoo:tiny"]) == 2
    assert "cannot write tiny.model" in capsys.readouterr().err
