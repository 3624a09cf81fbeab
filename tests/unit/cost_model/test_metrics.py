from __future__ import annotations

import numpy as np
import pytest

from cost_model.metrics import rank_correlation, regret, top_k_recall

UP = np.array([1.0, 2.0, 3.0, 4.0])


def test_same_order_and_reverse_order() -> None:
    assert rank_correlation(UP, UP**3) == pytest.approx(1.0)
    assert rank_correlation(UP, -UP) == pytest.approx(-1.0)


def test_a_constant_says_nothing() -> None:
    assert rank_correlation(np.ones(4), UP) == 0.0


def test_failures_are_tied_as_the_slowest() -> None:
    measured = np.array([1.0, 2.0, np.inf, np.inf])
    assert rank_correlation(np.array([1.0, 2.0, 4.0, 3.0]), measured) > 0.9


def test_recall_counts_the_fastest_that_were_predicted() -> None:
    assert top_k_recall(np.array([1.0, 3.0, 2.0, 4.0]), UP, 2) == 0.5
    assert top_k_recall(UP, UP, 10) == 1.0


def test_failures_are_never_recalled() -> None:
    measured = np.array([1.0, np.inf, np.inf, np.inf])
    assert top_k_recall(np.array([4.0, 1.0, 2.0, 3.0]), measured, 2) == 0.0
    assert top_k_recall(UP, measured, 2) == 1.0


def test_regret_is_relative_to_the_fastest() -> None:
    predicted = np.array([2.0, 1.0, 3.0, 4.0])
    assert regret(predicted, UP) == pytest.approx(1.0)
    assert regret(predicted, UP, 2) == 0.0
