"""Floors: bounds of direct code, and algorithms that may still win."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autotune.machine import Machine
from autotune.target import Target
from autotune.tuner.floors import Floors
from autotune.types import Task
from search_spaces.base import TileStructure
from search_spaces.params import Config, Param
from search_spaces.space import Space
from tests.unit.tuner.synthetic import PROFILE, SyntheticRule, subject

DIRECT_S = 2 * 256**3 / PROFILE.peak_flops / PROFILE.target.threads


class TwoAlgorithms(SyntheticRule):
    """Of which the second is modelled to need a share of the arithmetic."""

    def __init__(self, share: float) -> None:
        self.share = share

    def space(self, task: Task, target: Target) -> Space:
        plain = super().space(task, target)
        algorithm = Param(name="algorithm", choices=("direct", "fewer"))
        return Space((algorithm, *plain.params), plain.constraints)

    def structure(
        self, task: Task, machine: Machine, configs: Mapping[str, npt.NDArray[Any]]
    ) -> TileStructure:
        share = np.where(configs["algorithm"] == "fewer", self.share, 1.0)
        plain = super().structure(task, machine, configs)
        return dataclasses.replace(plain, vector_axis_waste=share)


def floors(share: float) -> Floors:
    rule, plain = TwoAlgorithms(share), subject()
    space = rule.space(plain.task, plain.target)
    return Floors(dataclasses.replace(plain, rule=rule, space=space))


def config(algorithm: str) -> Config:
    return Config((("algorithm", algorithm),))


def test_a_task_of_one_algorithm_has_the_bound_of_its_arithmetic() -> None:
    assert Floors(subject()).seconds() == pytest.approx(DIRECT_S)


def test_an_algorithm_with_less_arithmetic_lowers_the_floor() -> None:
    assert floors(0.6).seconds() == pytest.approx(0.3 * DIRECT_S)


def test_an_algorithm_that_is_modelled_to_lose_by_far_does_not() -> None:
    assert floors(1.8).seconds() == pytest.approx(DIRECT_S)


def test_an_algorithm_that_lost_does_not() -> None:
    found = floors(0.6)
    found.tell(config("direct"), 2 * DIRECT_S)
    assert found.seconds() < DIRECT_S
    found.tell(config("fewer"), 3 * DIRECT_S)
    assert found.seconds() == pytest.approx(DIRECT_S)
    found.tell(config("fewer"), DIRECT_S)
    assert found.seconds() < DIRECT_S


def test_a_bound_far_above_what_was_measured_is_none() -> None:
    """Tensor cores multiply faster than what the device's peak was measured with."""
    known = floors(1.0)
    known.tell(config("direct"), 0.9 * DIRECT_S)
    assert known.seconds() > 0
    known.tell(config("direct"), 0.1 * DIRECT_S)
    assert known.seconds() == 0
