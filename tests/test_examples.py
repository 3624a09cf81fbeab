"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.placement.partition import partition
from autotune.target import host_target
from examples import mini_autotune

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_five_schedules_a_prior_and_a_log(tmp_path: Path) -> None:
    log = tmp_path / "tuning.db"
    done = subprocess.run(
        [sys.executable, ROOT / "examples/mini_autotune.py", log],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "compiled with the best; largest error" in done.stdout
    (call,) = partition(mini_autotune.product()).calls
    with autotune.TuningLog(log, read_only=True) as store:
        records = store.records(call.task.key, host_target())
    assert len(records) == 5
    assert {record.result.status for record in records} == {"OK"}
    slowest = max(records, key=lambda record: record.result.median_s)
    assert slowest.schedule == ()


def test_a_model_of_pytorch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/pytorch.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    error = float(done.stdout.split("largest error ")[1].split()[0])
    assert error < 1e-4
    assert "operators are ours, in 1 piece" in done.stdout


def test_the_page_stays_a_page() -> None:
    lines = (ROOT / "examples/mini_autotune.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
