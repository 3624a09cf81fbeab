"""`autotune bench --profile`: kernels slowest first, the limit of the model, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli import main, peers


def bench(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    log = str(folder / "none.db")
    with pytest.raises(SystemExit) as ended:
        main(["bench", "zoo:tiny", "--repeats", "2", "--log", log, *options])
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_profile_lists_kernels_and_the_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = bench(capsys, tmp_path, "--profile").splitlines()
    assert {"algorithm", "bytes", "limit", "share"} <= set(lines[0].split())
    assert any(" direct " in line and " conv2d " in line for line in lines)
    assert lines[-2].startswith("limit of these kernels on this machine: ")
    shares = [float(line.split(" %")[0].split()[-1]) for line in lines[1:-2]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=1)


def test_the_profile_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(bench(capsys, tmp_path, "--json"))
    assert 0 < data["limit_s"] == pytest.approx(sum(k["limit_s"] for k in data["kernels"]))
    assert {k["bound"] for k in data["kernels"]} <= {"compute", "weights", "activations"}
    assert all(k["input_bytes"] > 0 and k["output_bytes"] > 0 for k in data["kernels"])


def test_a_named_log_that_is_not_there_is_mentioned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "none.db"
    with pytest.raises(SystemExit):
        main(["bench", "zoo:tiny", "--repeats", "2", "--log", str(log)])
    note = f"note: there is no tuning log {log}; every kernel gets its default schedule"
    assert note in capsys.readouterr().err
    assert not log.exists()


def test_other_engines_are_timed_beside(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    header, ours, theirs = bench(capsys, tmp_path, "--compare", "onnxruntime").splitlines()
    assert header.split()[:3] == ["engine", "median", "fastest"]
    assert ours.startswith("autotune ")
    assert " 1.00x " in ours
    assert theirs.startswith("onnxruntime ")
    assert float(theirs.split()[-1]) < 1e-5


def test_an_engine_that_is_not_installed_is_a_note(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(peers.ENGINES, "no_such_engine", peers.onnxruntime)  # type: ignore[misc]
    lines = bench(capsys, tmp_path, "--compare", "no_such_engine").splitlines()
    assert lines[-1] == "note: no_such_engine is not installed: pip install no_such_engine"
    assert lines[1].startswith("autotune ")


@pytest.mark.parametrize(
    ("model", "engines", "message"),
    [
        ("zoo:tiny", "tensorflow", "unknown engine 'tensorflow'; expected some of onnxruntime, "),
        ("tiny.model", "onnxruntime", "--compare needs the .onnx file"),
    ],
)
def test_what_can_t_be_compared_is_one_line(
    model: str, engines: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", model, "--compare", engines])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
