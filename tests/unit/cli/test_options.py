"""Texts of options and what they mean."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cli.options import at_least, cores, duration_s, parse_shapes
from autotune.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5", 1.5), ("10m", 600), ("1h30m", 5400), ("2h5s", 7205)],
)
def test_a_duration_in_seconds(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0m", "-5", "ten", "5 minutes", "5m1h", "nan", "inf", "9" * 400]
)
def test_a_wrong_duration_says_what_was_expected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="10m"):
        duration_s(text)


def test_cores_and_ranges_of_them() -> None:
    assert cores("0") == (0,)
    assert cores("0, 2-4,7") == (0, 2, 3, 4, 7)


@pytest.mark.parametrize("text", ["", "a", "1,", "3-1", "-1", "0-99999"])
def test_wrong_cores_say_what_was_expected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="0,2-3"):
        cores(text)


NAMES = st.from_regex(r"[a-z][a-z0-9_.=]{0,8}", fullmatch=True)
SHAPES = st.lists(st.integers(1, 999), min_size=1, max_size=5).map(tuple)


@settings(max_examples=30)
@given(st.dictionaries(NAMES, SHAPES))
def test_shapes_come_back_as_they_were_written(shapes: dict[str, tuple[int, ...]]) -> None:
    texts = [f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items()]
    assert parse_shapes(texts) == shapes


@pytest.mark.parametrize("text", ["x", "=1x2", "x=1x0", "x=1x2b", "x=-1", "x=1x", "x=1,2"])
def test_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=1x3x224x224"):
        parse_shapes([text])


def test_a_shape_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_shapes(["x=1", "x=2"])


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_a_number_below_the_least_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
        at_least(1)(text)
