"""Which parameters explain measured times."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.report.importance import explained, importances
from tests.unit.report.samples import filled, tiny

RNG = np.random.default_rng(0)


def test_a_parameter_that_decides_explains_all() -> None:
    choices = ["a", "b"] * 20
    assert explained(choices, np.array([float(c == "a") for c in choices])) == pytest.approx(1.0)


def test_a_parameter_without_effect_explains_nothing_however_many_choices_it_has() -> None:
    values = RNG.standard_normal(400)
    for choices in (2, 20, 100):
        drawn = [str(n) for n in RNG.integers(0, choices, len(values))]
        assert explained(drawn, values) < 0.05


def test_two_parameters_share_what_both_decide() -> None:
    first, second = RNG.integers(0, 2, 2000), RNG.integers(0, 2, 2000)
    values = 3.0 * first + 1.0 * second
    shares = [explained([str(c) for c in p], values) for p in (first, second)]
    assert shares == pytest.approx([0.9, 0.1], abs=0.03)


def test_equal_times_are_explained_by_nothing() -> None:
    assert explained(["a", "b", "a"], np.ones(3)) == 0.0


def test_parameters_are_listed_by_rule_and_share() -> None:
    found = importances(filled(tiny()).kept)
    assert found
    assert [(i.rule, -i.share) for i in found] == sorted((i.rule, -i.share) for i in found)
    assert all(0 <= i.share <= 1 and i.tasks >= 1 and i.samples >= 16 for i in found)
