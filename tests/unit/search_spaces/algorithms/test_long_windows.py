"""Filtering of long windows: where it applies, what it saves, and where the prior puts it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.ops.conv import tiled_reach
from autotune.program.winograd import points_of, transforms
from autotune.target import load_target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ON_CPUS
from search_spaces.cpu.contraction.shape import contraction_of
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import node, task, value

TARGET = load_target("x86-64-v4")


def along(
    length: int,
    taps: int,
    channels: tuple[int, int],
    *,
    column: bool = False,
    stride: int = 1,
) -> Task:
    """A convolution along a row or a column; its data have the halo that whole tiles read."""
    kernel, data = ((taps, 1), (length, 1)) if column else ((1, taps), (1, length))
    kind, weights = (1, *data, channels[0]), value("c0", (*kernel, *channels))
    down, across = (k // 2 for k in kernel)
    attrs = {"pads": (down, across) * 2, "strides": (stride, stride)}
    reach = tiled_reach(value("i0", kind).type, weights.type, attrs)
    rows, points = (
        (e + 2 * p - k) // stride + 1 for e, p, k in zip(data, (down, across), kernel, strict=True)
    )
    return task(
        [node("conv2d", "i0 c0", "o0", **attrs)],
        value("i0", kind, pads=reach),
        weights,
        value("o0", (1, rows, points, channels[1])),
    )


TASKS = {
    "row of nine taps": along(26, 9, (16, 24)),
    "column of eleven taps": along(18, 11, (24, 16), column=True),
}
"""What the contract of algorithms checks it on."""
FAST_SPEECH = along(200, 9, (256, 1024))
"""The wide layer of a FastSpeech 2 block, of 200 phonemes."""


def names(made: Task) -> set[str]:
    return {a.name for a in ON_CPUS.applicable(made, contraction_of(made), TARGET)}


@pytest.mark.parametrize(
    ("taps", "wanted"),
    [(7, "winograd2"), (8, "long_window4"), (9, "long_window4"), (10, "long_window2"),
     (11, "long_window2"), (12, "")],
)  # fmt: skip
def test_it_applies_where_winograd_does_not(taps: int, wanted: str) -> None:
    assert names(along(32, taps, (16, 16))) == {"direct", wanted} - {""}


@pytest.mark.parametrize(
    "made",
    [along(32, 9, (8, 16)), along(32, 9, (16, 8)), along(32, 9, (16, 16), stride=3)],
    ids=["few in", "few out", "strided"],
)
def test_it_leaves_to_direct_code_what_it_cannot_speed_up(made: Task) -> None:
    assert names(made) == {"direct"}


def test_it_needs_zeros_as_far_as_whole_tiles_read() -> None:
    made = along(31, 9, (16, 16))
    value_of = made.value("i0")
    bare = dataclasses.replace(value_of.layout, halo=((0, 0),) * 4)
    values = tuple(
        dataclasses.replace(v, layout=bare) if v == value_of else v for v in made.values
    )
    assert names(dataclasses.replace(made, values=values)) == {"direct"}


@pytest.mark.parametrize(("side", "taps"), [(4, 8), (4, 9), (2, 10), (2, 11)])
def test_twelve_points_lose_few_digits(side: int, taps: int) -> None:
    """In float32, summed over 64 channels."""
    rng = np.random.default_rng(0)
    outputs, filters, inputs = (np.asarray(m, np.float32) for m in transforms(side, taps))
    data = rng.standard_normal((points_of(side, taps), 64), np.float32)
    weights = rng.standard_normal((taps, 64), np.float32)
    got = outputs @ ((inputs @ data) * (filters @ weights)).sum(axis=1)
    want = [np.sum(np.float64(data[i : i + taps]) * weights) for i in range(side)]
    assert np.max(np.abs(got - want)) < 1e-4 * np.max(np.abs(want))


def test_the_prior_puts_it_first_where_it_pays() -> None:
    """Measured on Zen 4: 3.0 ms for 8.2 of direct code."""
    rule, machine = rule_for(FAST_SPEECH, TARGET), Machine.of(TARGET)
    config = cost_model.default(FAST_SPEECH, machine, rule)
    assert config["algorithm"] == "long_window4"
    schedule = rule.schedule(FAST_SPEECH, TARGET, config)
    assert ON_CPUS.chosen_by(config).flops(FAST_SPEECH, schedule) < 0.4 * task_flops(FAST_SPEECH)


def test_direct_code_stays_where_weights_are_most_of_the_work() -> None:
    """Eight points use each of 9 MB of weights, which would be a third more."""
    made = along(8, 9, (256, 1024))
    rule = rule_for(made, TARGET)
    assert cost_model.default(made, Machine.of(TARGET), rule)["algorithm"] == "direct"
