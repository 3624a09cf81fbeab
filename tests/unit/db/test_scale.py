"""The benchmark of large logs, on a small one: it finds nothing lost when writers are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import NewDatabase

ROOT = Path(__file__).parents[3]


def measured(log: str) -> list[str]:
    """Lines of a benchmark run."""
    done = subprocess.run(
        [sys.executable, "benchmarks/log_scale.py", log, "--records", "6000", "--kills", "5",
         "--queries", "50", "--appending", "0.3"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_killed_writers_lose_nothing_acknowledged(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log = str(tmp_path / "log.db")
    if kind == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_database")
        log = new_database()
    lines = measured(log)
    assert lines[0].startswith("6,000 records in")
    assert lines[-1].startswith("5 writers killed")
    assert lines[-1].endswith("all of them kept, nothing damaged")
