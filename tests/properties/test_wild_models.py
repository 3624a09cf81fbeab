"""Random ONNX models of many operators, types and odd shapes give what ONNX Runtime, or else the
reference evaluator, gives for them. `benchmarks/correctness/wild_models.py` runs thousands."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune.errors import AutotuneError
from benchmarks.correctness.wild_programs import PROGRAMS
from tests.needs import needs
from tests.properties.wild_models import wild_model
from tests.properties.wild_windows import ACTIONS

TOLERANCE = 2e-5


@pytest.mark.parametrize("seed", range(20_000, 20_016))
def test_right_or_refused_in_a_line(seed: int) -> None:
    wild = wild_model(seed, ACTIONS)
    try:
        got = list(autotune.compile(wild.model).run(dict(wild.feeds)).values())
    except AutotuneError as error:
        problem, got = str(error), [e.values for e in wild.expected]
        assert "\n" not in problem
    for wanted, array in zip(wild.expected, got, strict=True):
        assert wanted.difference(np.asarray(array), TOLERANCE) == ""


@pytest.mark.slow
@needs("cc")
@pytest.mark.parametrize("way", sorted(PROGRAMS))
@pytest.mark.parametrize("seed", range(30_000, 30_008))
def test_programs_are_right_or_refused_in_a_line(seed: int, way: str) -> None:
    """Compilers take no warning, and their sanitizers find nothing."""
    wild = wild_model(seed, ACTIONS)
    try:
        got = list(PROGRAMS[way](wild, seed)(dict(wild.feeds)).values())
    except AutotuneError as error:
        problem, got = str(error), [e.values for e in wild.expected]
        assert "\n" not in problem
    for wanted, array in zip(wild.expected, got, strict=True):
        assert wanted.difference(np.asarray(array), TOLERANCE) == ""
