"""When weights are asked for early: where the hardware is too late by itself."""

from __future__ import annotations

import dataclasses

import pytest

import cost_model
from autotune.machine import Machine
from autotune.machine.facts import Scattered
from autotune.target import host_target
from search_spaces.cpu.contraction.shape import STRIPS_FIRST
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import node, task, value
from tests.unit.machine.samples import FACTS, PROFILE


@pytest.mark.parametrize(
    ("points", "depth", "channels", "wanted"),
    [
        (1, 128, 512, "none"),  # a step of a recurrent layer: weights stay in the L2 cache
        (1, 4096, 4096, "panel"),  # a classifier's, larger than caches
        (2, 768, 3072, "none"),
        (8, 256, 1024, "panel"),  # arithmetic takes as long as the weights
    ],
)
def test_weights_are_asked_for_early_where_that_pays(
    points: int, depth: int, channels: int, wanted: str
) -> None:
    case = task(
        [node("matmul", "i0 c0", "o0", transpose_b=False)],
        value("i0", (points, depth)),
        value("c0", (depth, channels)),
        value("o0", (points, channels)),
    )
    sizes = {"l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    on = dataclasses.replace(host_target(1), **sizes)
    assert cost_model.default(case, Machine.of(on))["prefetch"] == wanted


@pytest.mark.parametrize(
    ("side", "channels", "wanted"), [(14, 128, "panel"), (56, 128, "panel"), (56, 64, "none")]
)
def test_weights_of_tiles_are_asked_for_early_where_they_are_late(
    side: int, channels: int, wanted: str
) -> None:
    case = task(
        [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
        value("i0", (1, side, side, channels), pads=((0, 0), (1, 8), (1, 8), (0, 0))),
        value("c0", (3, 3, channels, channels)),
        value("o0", (1, side, side, channels)),
    )
    sizes = {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20, "l3_bytes": 260 << 20}
    on = dataclasses.replace(host_target(1), **sizes)
    rule = rule_for(case, on)
    config = cost_model.default(case, Machine.of(on), rule)
    assert str(config["algorithm"]).startswith("winograd")
    assert config["prefetch"] == wanted
    steps = [s.step for s in rule.schedule(case, on, config)]
    assert ("prefetch" in steps) == (wanted == "panel")


SIDE_BY_SIDE = Scattered(footprint=1 << 28, near_s=3e-9, far_s=7e-9, prefetched_s=3.5e-9)
"""A core whose hardware brings nothing in while it multiplies: 3 ns and 4 ns take 7 ns."""


@pytest.mark.parametrize(
    ("points", "threads", "wanted"), [(128, 1, "panel"), (128, 2, "panel"), (4096, 1, "none")]
)
def test_panels_that_many_points_meet_are_asked_for_where_that_was_measured_to_pay(
    points: int, threads: int, wanted: str
) -> None:
    case = task(
        [node("matmul", "i0 c0", "o0", transpose_b=False)],
        value("i0", (points, 768)),
        value("c0", (768, 3072)),
        value("o0", (points, 3072)),
    )
    on = host_target(threads).with_accuracy("strict")
    facts = dataclasses.replace(FACTS, in_order=(SIDE_BY_SIDE,))
    profile = dataclasses.replace(PROFILE, target=on, facts=facts)
    config = cost_model.default(case, Machine.of(on, profile))
    assert config["prefetch"] == wanted
    assert wanted == "none" or config["order"] in ("channels_first", STRIPS_FIRST)


def test_single_points_go_without_where_the_hardware_is_faster() -> None:
    case = task(
        [node("matmul", "i0 c0", "o0", transpose_b=False)],
        value("i0", (1, 4096)),
        value("c0", (4096, 4096)),
        value("o0", (1, 4096)),
    )
    on = dataclasses.replace(host_target(1), l3_bytes=32 << 20)
    slow = dataclasses.replace(SIDE_BY_SIDE, prefetched_s=9e-9)
    for row, wanted in ((SIDE_BY_SIDE, "panel"), (slow, "none")):
        facts = dataclasses.replace(FACTS, in_order=(row,))
        profile = dataclasses.replace(PROFILE, target=on, facts=facts)
        assert cost_model.default(case, Machine.of(on, profile))["prefetch"] == wanted


def test_packed_quarters_cost_more_from_afar_than_a_long_stream_does() -> None:
    """A machine that hides a long stream wholly does not hide that of Strassen's short panels."""
    case = task(
        [node("matmul", "i0 c0", "o0", transpose_b=False)],
        value("i0", (128, 768)),
        value("c0", (768, 3072)),
        value("o0", (128, 3072)),
    )
    machine = Machine.of(host_target(1))
    rule = rule_for(case, machine.target)
    space = rule.space(case, machine.target)
    config = cost_model.default(case, machine, rule, {"algorithm": "strassen"})
    configs = space.configs(space.row(config)[None])

    def cycles(hidden: float) -> float:
        cpu = dataclasses.replace(machine.cpu, hidden_stream=hidden)
        return float(rule.prior(case, dataclasses.replace(machine, cpu=cpu), configs).cycles[0])

    assert cycles(1.0) == cycles(0.5)
    assert cycles(0.0) > cycles(0.5)
