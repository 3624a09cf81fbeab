"""benchmarks/demo.py: what it says of a gain."""

from __future__ import annotations

from benchmarks.demo import gain

CALM = ((4e-3, 4.1e-3), (2e-3, 2.2e-3))


def test_a_busy_round_does_not_turn_the_gain_around() -> None:
    busy = ((5e-3, 9e-3), (10e-3, 11e-3))
    text = gain([CALM, busy, CALM])
    assert "before 4.00 ms, after 2.00 ms" in text
    assert "median of 3 rounds; 6 runs of each" in text
    assert "speedup 2.00x (by round 0.50 to 2.00x)" in text


def test_runs_that_something_held_up_do_not_count() -> None:
    assert "after 2.00 ms" in gain([((4e-3, 4e-3), (50e-3, 2e-3))])
