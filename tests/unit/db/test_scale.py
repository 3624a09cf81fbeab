"""The benchmark of large logs, on a small one: it finds nothing lost when writers are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def measured(*log: str) -> list[str]:
    """Lines of a benchmark run."""
    done = subprocess.run(
        [sys.executable, "benchmarks/logs/log_scale.py", *log, "--records", "6000", "--kills", "4",
         "--queries", "50", "--appending", "0.3", "--server-kills", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    lines = measured(str(tmp_path / "log.db"))
    assert lines[0].startswith("appended to a new log, 1 a transaction: ")
    assert lines[1].startswith("6,000 records in")
    assert lines[-2].startswith("4 writers killed")
    assert lines[-2].endswith("all of them kept")
    assert lines[-1] == "nothing lost, nothing damaged"


@pytest.mark.slow
def test_killed_writers_and_servers_lose_nothing_acknowledged() -> None:
    lines = measured("--postgres")
    assert lines[0].startswith("appended to a new log, 1 a transaction: ")
    assert lines[-3].startswith("4 writers killed")
    assert lines[-2].startswith("the server killed 1 times")
    assert lines[-2].endswith("all of them kept")
    assert lines[-1] == "nothing lost, nothing damaged"
