"""Filters of records: dates, shapes, and the SQL they become."""

from __future__ import annotations

import pytest

from autotune.db.selection import Selection, conditions, moment, parse_shape, resolve
from autotune.errors import LogError


@pytest.mark.parametrize(
    ("text", "end", "found"),
    [
        ("2026-01-31", False, "2026-01-31T00:00:00+00:00"),
        ("2026-01-31", True, "2026-02-01T00:00:00+00:00"),
        ("2026-01-31T12:30", True, "2026-01-31T12:30:00+00:00"),
        ("2026-01-31T12:30:05+02:00", False, "2026-01-31T10:30:05+00:00"),
    ],
)
def test_a_date_becomes_a_moment_in_utc(text: str, end: bool, found: str) -> None:
    assert moment(text, end=end) == found


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "31.1.2026"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(LogError, match="expected a date"):
        moment(text)


def test_a_star_is_any_extent() -> None:
    assert parse_shape("1x56x*X64") == (1, 56, None, 64)


@pytest.mark.parametrize("text", ["", "1x", "ax3", "1x-2", "1,3"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(LogError, match="expected a shape"):
        parse_shape(text)


def test_values_are_parameters_and_never_text_of_the_statement() -> None:
    evil = "x'; DROP TABLE records; --"
    wanted = Selection(task_keys=[evil], op=evil, target=evil, device=evil, since=evil, until=evil)
    where, params = conditions(resolve(lambda *_: (), wanted), "r")
    assert evil not in where
    assert set(params.values()) == {evil}
    assert {f":{name}" in where for name in params} == {True}
