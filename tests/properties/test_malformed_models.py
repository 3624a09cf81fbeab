"""Damaged models end in the project's own errors: one line, soon, before memory is taken.

They are imported in a process of its own, whose memory is bounded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = 1200


def complaints(first: int, last: int) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "tests.properties.malformed"]
    done = subprocess.run(
        [*command, str(first), str(last)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_damaged_models_are_refused_in_a_line() -> None:
    assert complaints(0, 120) == ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_damaged_models_are(part: int) -> None:
    first = 10_000 + part * SLOW // 4
    assert complaints(first, first + SLOW // 4) == ""
