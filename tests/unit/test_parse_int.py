"""Whole numbers as people write them."""

from __future__ import annotations

import pytest

from autotune.parse_int import LARGEST, whole


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("007", 7), ("65535", 65535)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole(text, 65535) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1_0", "\u00b2", "\u0663", "65536"])
def test_what_is_no_number_of_use_is_none(text: str) -> None:
    assert whole(text, 65535) is None


def test_more_digits_than_python_reads_are_none() -> None:
    assert whole("9" * 9999) is None
    assert whole(str(LARGEST)) == LARGEST
    assert whole(str(LARGEST + 1)) is None
