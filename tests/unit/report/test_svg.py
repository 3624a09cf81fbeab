from __future__ import annotations

import re

import pytest

from autotune.report.svg import Chart, ChartAxis, bars, linear_axis, log_axis, number


def test_linear_ticks_are_round_and_inside() -> None:
    assert linear_axis("", 10.0).ticks() == (0, 5, 10)
    assert linear_axis("", 41.0, low=1.0).ticks() == (10, 20, 30, 40)


def test_log_ticks_are_round_and_inside() -> None:
    assert ChartAxis(label="", low=0.9, high=30, log=True).ticks() == (1, 2, 5, 10, 20)
    assert ChartAxis(label="", low=1e-6, high=1.0, log=True).ticks() == pytest.approx(
        [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    )


@pytest.mark.parametrize("spread", [1.02, 1.1, 1.5, 2, 3, 7, 30, 400, 1e4, 1e9])
@pytest.mark.parametrize("low", [3.7e-7, 1.0, 8.4e5])
def test_an_axis_has_several_ticks_but_not_many(low: float, spread: float) -> None:
    for axis in (log_axis("", [low, low * spread]), linear_axis("", low * spread, low=low)):
        assert 2 <= len(axis.ticks()) <= 9


def test_a_log_axis_of_nothing_is_still_one() -> None:
    axis = log_axis("", [])
    assert axis.low < 1 < axis.high


def test_steps_hold_until_the_next_point() -> None:
    chart = Chart(linear_axis("x", 4.0), linear_axis("y", 4.0))
    chart.line([(1, 4), (3, 2)], "s0", "falls", steps=True)
    points = re.findall(r'<polyline[^>]*points="([^"]*)"', chart.text())[0].split()
    xs, ys = ([p.split(",")[axis] for p in points] for axis in (0, 1))
    assert xs[0] != xs[1] == xs[2]
    assert ys[0] == ys[1] != ys[2]


def test_texts_leave_room_for_each_other() -> None:
    chart = Chart(linear_axis("x", 4.0), linear_axis("y", 4.0))
    for text in ("L1: 200 GB/s", "L2", "peak", "1", "2"):
        chart.write(2.0, 2.0, text, "middle")
    chart.write(0.0, 2.0, "far away")
    found = re.findall(
        r'<text class="name" x="([^"]+)" y="([^"]+)" text-anchor="\w+">(?!x<|y<)', chart.text()
    )
    heights = [float(y) for x, y in found if x == found[0][0]]
    assert len(heights) == 5
    assert min(abs(a - b) for n, a in enumerate(heights) for b in heights[:n]) >= 12
    assert found[-1][1] == found[0][1]  # what is beside needs no room above


def test_bars_are_as_long_as_their_values() -> None:
    lengths = [float(w) for w in re.findall(r'width="([\d.]+)" height="14"', bars([
        ("a", 4.0, "4"), ("b", 1.0, "1"),
    ]))]  # fmt: skip
    assert lengths[0] == pytest.approx(4 * lengths[1], rel=0.01)


def test_names_are_escaped() -> None:
    assert "<b>" not in bars([("<b>", 1.0, "<b>")])


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (1234.0, "1.23k"), (2e6, "2M"), (3e9, "3G")]
)
def test_numbers_have_magnitudes(value: float, text: str) -> None:
    assert number(value) == text
