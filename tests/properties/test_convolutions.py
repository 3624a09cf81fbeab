"""Convolutions of random shape on every kind of target: what a space holds can be scheduled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cost_model
from autotune.machine import Machine
from autotune.target import Target, load_target
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.contracts.test_rules import conv

TARGETS = [load_target(n) for n in ("opencl", "sm_80", "sm_90a", "x86-64-v4", "cortex-a72")]
FEW = st.integers(1, 3)
PAIRS = st.tuples(FEW, FEW)


@st.composite
def convolutions(draw: st.DrawFn) -> Task:
    """Grouped, strided and dilated, each or all of them; also one channel in or out of a group."""
    kernel, strides, dilations = draw(PAIRS), draw(PAIRS), draw(PAIRS)
    groups = draw(st.integers(1, 4))
    inputs, outputs = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    image, pad = draw(st.tuples(st.integers(1, 14), st.integers(1, 14))), draw(st.integers(0, 2))
    height, width = (
        (e + 2 * pad - d * (k - 1) - 1) // s + 1
        for e, k, s, d in zip(image, kernel, strides, dilations, strict=True)
    )
    assume(height > 0 and width > 0)
    channels = groups * outputs
    return conv(
        (1, *image, groups * inputs), (*kernel, inputs, channels), (1, height, width, channels),
        pad=pad, strides=strides, dilations=dilations, groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(max_examples=10)
@given(made=convolutions(), seed=st.integers(0, 99))
def test_every_config_of_a_space_has_a_schedule(target: Target, made: Task, seed: int) -> None:
    rule = rule_for(made, target)
    space = rule.space(made, target)
    rows = space.sample(np.random.default_rng(seed), 3)
    for config in [cost_model.default(made, Machine.of(target), rule), *map(space.config, rows)]:
        assert space.contains(config)
        assert rule.schedule(made, target, config)
