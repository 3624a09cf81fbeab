"""What goes beside multiply-adds, and beside a line: shares, on any machine the same each time."""

from __future__ import annotations

import time

import pytest

from autotune.measure.facts.beside import Beside
from autotune.target import host_target


@pytest.mark.slow
def test_both_are_shares_that_repeat() -> None:
    found = [Beside(host_target(1), time.perf_counter) for _ in range(3)]
    for shares in ([b.additions() for b in found], [b.lone_line() for b in found]):
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert max(shares) - min(shares) < 0.5


def test_of_times() -> None:
    beside = object.__new__(Beside)
    for alone, both, share in ((2.0, 2.0, 1.0), (2.0, 3.0, 0.5), (2.0, 4.2, 0.0), (2.0, 1.9, 1.0)):
        beside._round_s = {"alone": alone, "both": both}
        assert beside.additions() == pytest.approx(share)
    for every, other, share in ((2.0, 4.0, 1.0), (2.0, 2.5, 0.25), (2.0, 1.9, 0.0)):
        beside._round_s = {"every": every, "other": other}
        assert beside.lone_line() == pytest.approx(share)
