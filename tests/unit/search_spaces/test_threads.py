"""How threads share kernels: what one of them made, it reads again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.ir import For, walk
from autotune.schedule.base import apply_schedule
from autotune.schedule.loops.nest import Split
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.cpu.contraction.shape import contraction_of
from search_spaces.cpu.contraction.tiles import strips
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value


def conv(side: int, kernel: int, ic: int, oc: int) -> Task:
    pad = kernel // 2
    halo = ((0, 0), (pad, pad + 2), (pad, pad + 2), (0, 0))
    return task(
        [node("conv2d", "i0 c0", "o0", pads=(pad, pad, pad, pad))],
        value("i0", (1, side, side, ic), pads=halo),
        value("c0", (kernel, kernel, ic, oc)),
        value("o0", (1, side, side, oc)),
    )


def target(threads: int, accuracy: str = "strict") -> Target:
    sizes = {"l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    return dataclasses.replace(host_target(threads), accuracy=accuracy, **sizes)


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_share_rows_where_data_outweigh_weights(threads: int) -> None:
    case, on = conv(56, 1, 24, 144), target(threads)
    order = cost_model.default(case, Machine.of(on))["order"]
    assert order in ("rows_first", "points_first")


def test_threads_share_channels_where_weights_outweigh_data() -> None:
    case, on = conv(7, 1, 512, 2048), target(2)
    assert cost_model.default(case, Machine.of(on))["order"] == "channels_first"


def test_threads_share_few_tiles_by_their_products() -> None:
    """Two blocks would need all transformed weights twice."""
    case, on = conv(14, 3, 256, 256), target(2, "normal")
    config = cost_model.default(case, Machine.of(on))
    assert (config["algorithm"], config["block"]) == ("winograd4", 16)


def test_products_of_halves_keep_each_threads_points() -> None:
    case, on = conv(28, 1, 256, 256), target(2, "normal")
    rule = rule_for(case, on)
    space = rule.space(case, on)
    configs = map(space.config, space.rows(2000, np.random.default_rng(0)))
    config = next(c for c in configs if c["algorithm"] == "strassen")
    steps = rule.schedule(case, on, config)
    runs = [s.factor for s in steps if isinstance(s, Split) and s.loop == "stra_t"]
    assert runs == [28 * 28 // 2 // 2]


def product(points: int, depth: int, channels: int) -> Task:
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (1, points, depth)),
        value("c0", (depth, channels)),
        value("o0", (1, points, channels)),
    )


def test_threads_keep_their_points_where_passing_data_on_takes_longer() -> None:
    case, on = product(128, 768, 768), target(2)
    rule = rule_for(case, on)
    config = cost_model.default(case, Machine.of(on), rule)
    assert config["order"] == "bands_first"
    steps = rule.schedule(case, on, config)
    assert [s.factor for s in steps if isinstance(s, Split) and s.outer == "band"] == [64]


def test_one_thread_has_no_strips() -> None:
    case = product(128, 768, 768)
    orders = {p.name: p.choices for p in rule_for(case, target(1)).space(case, target(1)).params}
    assert "bands_first" not in orders["order"]


@pytest.mark.parametrize(
    ("case", "threads", "strips"),
    [
        (conv(7, 1, 24, 40), 2, 7),
        (conv(12, 3, 20, 40), 3, 3),
        (product(52, 24, 40), 2, 2),
        (product(45, 24, 72), 2, 3),
    ],
)
def test_strips_of_rows_or_points_are_right(case: Task, threads: int, strips: int) -> None:
    """Also where a last tile of a strip is shorter."""
    on = target(threads)
    assert strips_of(case, on) == strips
    rule = rule_for(case, on)
    space = rule.space(case, on)
    configs = map(space.config, space.rows(4000, np.random.default_rng(0)))
    chosen = [c for c in configs if c["order"] == "bands_first"][:4]
    assert len(chosen) == 4
    arrays = random_inputs(case, seed=0)
    for config in chosen:
        program = apply_schedule(build_program(case), rule.schedule(case, on, config))
        assert any(isinstance(s, For) and s.kind == "parallel" for s in walk(program.body))
        assert_close(run_kernel(case, program, on, arrays), evaluate_task(case, arrays))


def strips_of(case: Task, on: Target) -> int:
    return strips(contraction_of(case), on)


def depthwise(side: int, channels: int) -> Task:
    return task(
        [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1), groups=channels)],
        value("i0", (1, side, side, channels), pads=((0, 0), (1, 1), (1, 1), (0, 0))),
        value("c0", (3, 3, 1, channels)),
        value("o0", (1, side, side, channels)),
    )


def shared_windows(case: Task, on: Target) -> tuple[list[int], list[str]]:
    """Extents of the loops that threads share in a window's kernel whose blocks of channels come
    first, two rows at a time, and the names of the loops in it."""
    rule = rule_for(case, on)
    space = rule.space(case, on)
    configs = map(space.config, space.rows(2000, np.random.default_rng(0)))
    wanted = {"order": "channels_first", "tile_h": 2, "vectors": 1}
    config = next(c for c in configs if wanted.items() <= dict(c.items).items())
    program = apply_schedule(build_program(case), rule.schedule(case, on, config))
    arrays = random_inputs(case, seed=0)
    assert_close(run_kernel(case, program, on, arrays), evaluate_task(case, arrays))
    loops = [s for s in walk(program.body) if isinstance(s, For)]
    return [s.extent for s in loops if s.kind == "parallel"], [s.var for s in loops]


@pytest.mark.parametrize(("threads", "strips"), [(2, 2), (3, 4)])
def test_threads_share_strips_of_rows_before_blocks_of_channels(threads: int, strips: int) -> None:
    on = target(threads)
    shared, loops = shared_windows(depthwise(16, 8 * on.lanes()), on)
    assert shared == [strips * 8]
    assert "strip" in loops


def test_threads_share_channels_where_points_are_few() -> None:
    on = target(2)
    shared, loops = shared_windows(depthwise(4, 32 * on.lanes()), on)
    assert shared == [32]
    assert "strip" not in loops
