"""`--precision int8` from tuning to running, on samples of the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.cli import execute


def test_a_model_is_tuned_compiled_and_run_on_bytes(
    tmp_path: Path,
    cache_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    samples = np.random.default_rng(0).random((3, 1, 3, 32, 32), np.float32)
    np.savez("samples.npz", x=samples)
    asked = ["--precision", "int8", "--calibration", "samples.npz"]
    assert execute(["tune", "zoo:tiny", "--trials", "10", *asked]) == 0
    assert execute(["compile", "zoo:tiny", "-o", "tiny.model", *asked]) == 0
    out = capsys.readouterr().out
    assert "5 convolutions and matrix products on bytes" in out
    assert "cosine" in out
    assert "10 record" in out
    assert execute(["run", "tiny.model", "--random", "-o", "out.npz"]) == 0
    assert np.load("out.npz")["y"].shape == (1, 10)


def test_samples_that_do_not_fit_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "bad.npz", image=np.ones(3))
    command = ["compile", "zoo:tiny", "-o", str(tmp_path / "m"), "--precision", "int8"]
    assert execute([*command, "--calibration", str(tmp_path / "bad.npz")]) == 2
    assert "expected arrays x" in capsys.readouterr().err
