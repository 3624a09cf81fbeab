"""Verdicts on outputs."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from autotune.measure.check import Reference, check_against, check_points


def reference(truth: npt.NDArray[np.generic], points: list[list[int]]) -> Reference:
    where = np.asarray(points, np.int64)
    return Reference(
        points=where,
        expected=truth[tuple(where.T)].astype(np.float64),
        oracle=lambda at: truth[tuple(at.T)].astype(np.float64),
        dtype=str(truth.dtype),
    )


TRUTH = np.linspace(-100, 100, 20, dtype=np.float32).reshape(4, 5)


def test_rounding_relative_to_the_largest_value_passes() -> None:
    verdict = check_points(reference(TRUTH, [[0, 0], [1, 2]]), TRUTH + np.float32(0.01))
    assert verdict.error == ""
    assert verdict.max_error == pytest.approx(1e-4, rel=0.01)


def test_a_wrong_element_is_named() -> None:
    output = TRUTH.copy()
    output[1, 2] = 7
    verdict = check_points(reference(TRUTH, [[0, 0], [1, 2]]), output)
    assert "1 of 2 checked elements differ; [1,2]: expected" in verdict.error


def test_an_unwritten_element_is_found_anywhere() -> None:
    output = TRUTH.copy()
    output[3, 4] = np.nan
    assert "[3,4]" in check_points(reference(TRUTH, [[0, 0]]), output).error


def test_nan_and_infinity_are_right_where_the_reference_has_them() -> None:
    truth = np.asarray([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert check_points(reference(truth, [[0], [1], [2], [3]]), truth.copy()).error == ""
    assert check_points(reference(truth, [[1]]), -truth).error != ""


def test_integers_are_exact() -> None:
    truth = np.asarray([1_000_000, 2], np.int64)
    assert check_points(reference(truth, [[0], [1]]), truth.copy()).error == ""
    assert check_points(reference(truth, [[0]]), truth + 1).error != ""


def test_a_scalar_output_is_checked() -> None:
    truth = np.asarray(3.0, np.float32)
    points = np.zeros((1, 0), np.int64)
    scalar = Reference(
        points=points, expected=np.asarray([3.0]), oracle=lambda _: truth, dtype="float32"
    )
    assert check_points(scalar, truth.copy()).error == ""
    assert check_points(scalar, truth + 1).error != ""


def test_a_difference_to_an_accepted_output_is_settled_by_the_oracle() -> None:
    output = TRUTH.copy()
    output[2, 3] += 5
    verdict, held = check_against(reference(TRUTH, [[0, 0]]), output, TRUTH)
    assert "[2,3]" in verdict.error
    assert held


def test_an_accepted_output_that_was_wrong_is_found_out() -> None:
    accepted = TRUTH.copy()
    accepted[2, 3] += 5
    verdict, held = check_against(reference(TRUTH, [[0, 0]]), TRUTH, accepted)
    assert verdict.error == ""
    assert not held


def test_a_number_where_the_reference_has_none_is_wrong() -> None:
    truth = np.asarray([np.nan, 1.0], np.float32)
    output = np.asarray([0.0, 1.0], np.float32)
    assert "[0]: expected nan, got 0.0" in check_points(reference(truth, [[0], [1]]), output).error


@pytest.mark.parametrize(("apart", "right"), [(2, True), (3, False)])
def test_few_rounded_integers_may_be_one_off(apart: int, right: bool) -> None:
    truth = np.zeros(100, np.int8)
    output = truth.copy()
    output[:apart] = 1
    rounded = dataclasses.replace(reference(truth, [[n] for n in range(100)]), rounded=True)
    assert (check_points(rounded, output).error == "") is right


def test_a_rounded_integer_is_never_two_off() -> None:
    truth = np.zeros(100, np.int8)
    output = truth.copy()
    output[7] = 2
    rounded = dataclasses.replace(reference(truth, [[n] for n in range(100)]), rounded=True)
    assert "[7]: expected 0, got 2" in check_points(rounded, output).error
