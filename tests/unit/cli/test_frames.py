"""`autotune run --state`: frame after frame, as sessions called by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from tests.unit.runtime.test_state import recurrent

Captured = pytest.CaptureFixture[str]
STATE = ("--state", "h=hn", "--state", "c=cn")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a recurrent model, frames for it and a first state."""
    monkeypatch.chdir(tmp_path)
    Path("step.onnx").write_bytes(recurrent(3))
    r = np.random.default_rng(0)
    np.save("frames.npy", r.random((5, 3, 8), np.float32))
    np.save("h.npy", r.random((3, 8), np.float32))


def test_frames_go_one_after_the_other(capsys: Captured) -> None:
    given = ("--input", "x=frames.npy", "--input", "h=h.npy")
    assert execute(["run", "step.onnx", *given, *STATE, "--repeat", "5", "-o", "y.npz"]) == 0
    assert "5x3x8" in capsys.readouterr().out
    found = np.load("y.npz")
    with autotune.compile("step.onnx", machine="nominal") as made:
        session = made.session({"h": "hn", "c": "cn"}, {"h": np.load("h.npy")})
        wanted = [session.run({"x": frame})["y"] for frame in np.load("frames.npy")]
        np.testing.assert_allclose(found["y"], np.stack(wanted), rtol=1e-6)
        np.testing.assert_allclose(found["hn"], session.state["h"], rtol=1e-6)
        np.testing.assert_allclose(found["cn"], session.state["c"], rtol=1e-6)


def test_one_frame_and_random_ones(capsys: Captured) -> None:
    assert execute(["run", "step.onnx", "--random", *STATE, "--repeat", "4"]) == 0
    assert "4x3x8" in capsys.readouterr().out
    assert execute(["run", "step.onnx", "--random", *STATE, "-o", "y.npz"]) == 0
    assert np.load("y.npz")["y"].shape == (3, 8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--random", "--repeat", "3"), "--repeat is for calls that follow one another"),
        (("--random", "--state", "h"), "expected --state INPUT=OUTPUT, got 'h'"),
        (("--random", "--state", "h=hn", "--state", "h=cn"), "--state of h is given twice"),
        (("--random", "--state", "g=hn"), "state: the model has no input 'g'"),
        (("--random", *STATE, "--device", "board:1"), "--state is for this machine"),
    ],
)
def test_what_does_not_go_together(
    arguments: tuple[str, ...], words: str, capsys: Captured
) -> None:
    assert execute(["run", "step.onnx", *arguments]) == 2
    err = capsys.readouterr().err.splitlines()
    assert words in err[-1]
    assert not any(line.startswith("Traceback") for line in err)
