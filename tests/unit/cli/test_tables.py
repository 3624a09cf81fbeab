"""Columns and units."""

from __future__ import annotations

import math

import pytest

from autotune.cli import tables


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (4.2e-6, "4.20 us"), (3e-8, "30.0 ns"), (None, "-")],
)
def test_a_time_has_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert tables.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(12, "12"), (1_500, "1.50 k"), (231e6, "231 M")])
def test_a_count_has_a_magnitude(value: float, text: str) -> None:
    assert tables.count(value) == text


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = tables.table(("name", "n"), [("a", "10"), ("longer", "5")], right=(1,))
    assert text.splitlines() == ["name     n", "a       10", "longer   5"]


def test_a_rate_needs_a_time() -> None:
    assert tables.gflops(2e9, 1.0) == "2.00"
    assert tables.gflops(2e9, None) == "-"


def test_a_ranking_says_what_is_not_known_and_what_failed() -> None:
    assert tables.ranking(0.5, 1.0, 0.25) == ("0.500", "100%", "25.0%")
    assert tables.ranking(0.5, 1.0, math.inf) == ("0.500", "100%", "failed")
    assert tables.ranking(math.nan, math.nan, math.nan) == ("-", "-", "-")
