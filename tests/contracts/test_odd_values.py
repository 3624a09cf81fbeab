"""Odd values through every kind of kernel: each backend gives what numpy gives, and lives on."""

from __future__ import annotations

import pytest

from autotune.ops import OPS
from tests.contracts import odd_models, odd_values
from tests.contracts.odd_values import BACKENDS, GROUPS

FAST = {
    "native": tuple(GROUPS),
    "sm_80": ("reductions", "places"),
    "c": ("places",),
}
SLOW = [(b, g) for b in BACKENDS for g in GROUPS if g not in FAST.get(b, ())]
UNTRIED = {"to_float16", "recur", "blocks"}
"""Results of the one are CUDA's own, see the tests of short tensors; the other has no kernel."""


def test_every_op_is_tried() -> None:
    tried = {case.op for group in GROUPS.values() for case in group()}
    assert tried | UNTRIED == set(OPS)


@pytest.mark.parametrize(("backend", "group"), [(b, g) for b, some in FAST.items() for g in some])
def test_kernels(backend: str, group: str) -> None:
    assert not odd_values.verdicts(backend, group)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "group"), SLOW)
def test_all_other_kernels(backend: str, group: str) -> None:
    assert not odd_values.verdicts(backend, group)


def test_constants_are_folded_by_the_same_rules() -> None:
    assert not {k: v for k, v in odd_models.verdicts("numpy").items() if v}


@pytest.mark.parametrize("accuracy", ["normal", pytest.param("strict", marks=pytest.mark.slow)])
def test_models(accuracy: str) -> None:
    found = odd_models.verdicts("cpu", accuracy)
    assert not {name: text for name, text in found.items() if text}


@pytest.mark.slow
def test_models_in_c() -> None:
    assert not {k: v for k, v in odd_models.verdicts("c").items() if v}
