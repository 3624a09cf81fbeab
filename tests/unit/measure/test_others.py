"""What others have of the cores, by the system's counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.measure.others import COUNTS, Others, glance

TICKS = os.sysconf("SC_CLK_TCK")


def counted(path: Path, *cores: tuple[int, int, int]) -> Path:
    """A file of counts; (user, idle, stolen) ticks of each core."""
    rows = [
        f"cpu{n} {user} 0 0 {idle} 0 0 0 {stolen} 0 0"
        for n, (user, idle, stolen) in enumerate(cores)
    ]
    path.write_text("\n".join(["cpu  9 9 9 9", *rows, "intr 5", ""]))
    return path


@pytest.mark.parametrize(
    ("after", "own_ticks", "share"),
    [
        (((100, 0, 0), (0, 100, 0)), 100, 0.0),
        (((100, 0, 0), (50, 50, 0)), 100, 0.25),
        (((0, 50, 50), (100, 0, 0)), 0, 0.75),
        (((0, 100, 0), (0, 100, 0)), 30, 0.0),
    ],
)
def test_the_share_is_of_what_is_neither_idle_nor_own(
    tmp_path: Path, after: tuple[tuple[int, int, int], ...], own_ticks: int, share: float
) -> None:
    own = iter((0.0, own_ticks / TICKS))
    path = counted(tmp_path / "stat", (0, 0, 0), (0, 0, 0))
    others = Others((0, 1), path, lambda: next(own))
    counted(path, *after)
    assert others.share() == pytest.approx(share)


def test_only_the_named_cores_count(tmp_path: Path) -> None:
    path = counted(tmp_path / "stat", (0, 0, 0), (0, 0, 0))
    others = Others((1,), path, lambda: 0.0)
    counted(path, (100, 0, 0), (0, 100, 0))
    assert others.share() == 0.0


@pytest.mark.parametrize("text", ["", "cpu0 1 2", "cpu0 a b c d e", "nonsense"])
def test_a_system_that_counts_nothing_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stat"
    assert Others((0,), path).share() is None
    path.write_text(text)
    assert Others((0,), path).share() is None


def test_a_glance_is_a_share_where_anything_is_counted() -> None:
    found = glance((0,))
    assert (found is None) == (not COUNTS.exists())
    assert found is None or 0.0 <= found <= 1.0
