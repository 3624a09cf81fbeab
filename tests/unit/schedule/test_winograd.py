"""Winograd's algorithm: the transforms, the step against the naive loops, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.ops.conv import tiled_reach
from autotune.program.ir import Alloc, Program, walk
from autotune.program.text import print_program
from autotune.program.winograd import additions, factored, points_of, transforms
from autotune.schedule import STEPS, apply_schedule
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import node, run_kernel, task, value


def conv(
    height: int,
    width: int,
    *,
    batch: int = 1,
    channels: int = 3,
    filters: int = 5,
    kernel: tuple[int, int] = (3, 3),
    pad: int = 1,
    stride: int = 1,
    groups: int = 1,
) -> Task:
    """A convolution with bias whose data has the halo that whole tiles read."""
    kh, kw = kernel
    weights = value("c0", (kh, kw, channels // groups, filters))
    data = (batch, height, width, channels)
    pads = (min(pad, kh - 1), min(pad, kw - 1)) * 2
    attrs = {"pads": pads, "strides": (stride, stride), "groups": groups}
    reach = tiled_reach(value("i0", data).type, weights.type, attrs)
    out = (
        batch, (height + 2 * pads[0] - kh) // stride + 1,
        (width + 2 * pads[1] - kw) // stride + 1, filters,
    )  # fmt: skip
    return task(
        [node("conv2d", "i0 c0", "t0", **attrs), node("add", "t0 c1", "o0")],
        value("i0", data, pads=reach),
        weights,
        value("c1", (filters,)),
        value("t0", out),
        value("o0", out),
    )


def merged(case: Task) -> Program:
    """The naive program with the bias added in the convolution's loops."""
    step = STEPS.get("compute_at")(buffer="o0", at="t0_oc")
    return step.apply(build_program(case))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    ("r", "stride"), [(1, 1), (2, 1), (3, 1), (7, 1), (2, 2), (3, 2), (5, 2), (4, 3)]
)
def test_transforms_filter_exactly(m: int, r: int, stride: int) -> None:
    outputs, filters, inputs = (np.asarray(t) for t in transforms(m, r, stride))
    rng = np.random.default_rng(m * 10 + r)
    data, taps = rng.integers(-9, 9, points_of(m, r, stride)), rng.integers(-9, 9, r)
    got = outputs @ ((filters @ taps) * (inputs @ data))
    np.testing.assert_allclose(got, np.correlate(data, taps, "valid")[::stride], atol=1e-9)


def test_a_stride_wider_than_the_filter_is_refused() -> None:
    with pytest.raises(ScheduleError, match="some inputs meet no tap"):
        transforms(2, 1, 2)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"no F\(5, 9\)"):
        transforms(5, 9)


@pytest.mark.parametrize(
    ("case", "step"),
    [
        (conv(8, 8), {"tile_h": 4, "tile_w": 4, "block_h": 1, "block_w": 2}),
        (conv(8, 8), {"tile_h": 4, "tile_w": 4, "block_h": 2, "block_w": 2}),
        (conv(7, 5), {"tile_h": 4, "tile_w": 4, "block_h": 1, "block_w": 1}),
        (conv(7, 6, batch=2), {"tile_h": 2, "tile_w": 2, "block_h": 2, "block_w": 3}),
        (conv(6, 6, pad=0), {"tile_h": 4, "tile_w": 2, "block_h": 1, "block_w": 2}),
        (conv(5, 8, kernel=(1, 3)), {"tile_h": 1, "tile_w": 4, "block_h": 5, "block_w": 1}),
        (conv(8, 5, kernel=(3, 1)), {"tile_h": 4, "tile_w": 1, "block_h": 2, "block_w": 5}),
        (conv(6, 6, kernel=(2, 2), pad=0), {"tile_h": 2, "tile_w": 4, "block_h": 3, "block_w": 2}),
        (conv(8, 8, stride=2), {"tile_h": 4, "tile_w": 4, "block_h": 1, "block_w": 1}),
        (
            conv(8, 8, channels=4, filters=6, groups=2),
            {"tile_h": 4, "tile_w": 4, "block_h": 1, "block_w": 2},
        ),
        (conv(14, 9, stride=2), {"tile_h": 2, "tile_w": 4, "block_h": 2, "block_w": 2}),
        (
            conv(8, 8, kernel=(5, 5), pad=2, stride=2),
            {"tile_h": 2, "tile_w": 2, "block_h": 2, "block_w": 1},
        ),
        (
            conv(3, 5, batch=6, channels=16),
            {"tile_h": 3, "tile_w": 3, "block_h": 1, "block_w": 2, "together": 2},
        ),
        (
            conv(3, 3, batch=4, channels=16, filters=32),
            {"tile_h": 3, "tile_w": 3, "block_h": 1, "block_w": 1, "together": 4},
        ),
    ],
)
def test_equals_the_naive_loops(case: Task, step: dict[str, int]) -> None:
    program = STEPS.get("winograd")(buffer="t0", lanes=2, **step).apply(merged(case))
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(case, 1)
    np.testing.assert_allclose(run(program, arrays), evaluate_task(case, arrays), atol=1e-4)


@pytest.mark.parametrize(
    ("case", "step"),
    [
        (conv(8, 8), {"tile_h": 4, "tile_w": 4, "group": 3}),
        (conv(7, 5), {"tile_h": 4, "tile_w": 4, "group": 4}),
        (conv(7, 6, batch=3), {"tile_h": 2, "tile_w": 2, "group": 5}),
        (conv(6, 7, batch=2, pad=0), {"tile_h": 4, "tile_w": 2, "group": 1}),
        (conv(5, 8, kernel=(1, 3)), {"tile_h": 1, "tile_w": 4, "group": 4}),
        (conv(9, 11, batch=2, stride=2), {"tile_h": 2, "tile_w": 4, "group": 7}),
        (conv(9, 9, kernel=(5, 5), pad=2), {"tile_h": 2, "tile_w": 4, "group": 4}),
        (
            conv(7, 9, channels=4, filters=6, groups=2),
            {"tile_h": 4, "tile_w": 4, "group": 3},
        ),
    ],
)
def test_all_tiles_in_groups_equal_the_naive_loops(case: Task, step: dict[str, int]) -> None:
    program = STEPS.get("winograd_groups")(buffer="t0", lanes=2, **step).apply(merged(case))
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(case, 1)
    np.testing.assert_allclose(run(program, arrays), evaluate_task(case, arrays), atol=1e-4)


@pytest.mark.parametrize(
    ("case", "step", "why"),
    [
        (conv(3, 8), {"tile_h": 4, "tile_w": 4, "group": 3}, "a tile of 4 points may be longer"),
        (conv(8, 8), {"tile_h": 4, "tile_w": 4, "group": 0}, "must be at least 1"),
    ],
)
def test_groups_that_do_not_fit_are_refused(case: Task, step: dict[str, int], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        STEPS.get("winograd_groups")(buffer="t0", lanes=2, **step).apply(merged(case))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("case", "algorithm"),
    [
        (conv(8, 8, channels=20, filters=37), "winograd2"),
        (conv(8, 8, channels=20, filters=37), "winograd4"),
        (conv(13, 13, channels=20, filters=37), "winograd2"),
        (conv(13, 13, channels=20, filters=37), "winograd4"),
        (conv(7, 7, channels=32, filters=37), "winograd4x2"),
        (conv(10, 13, channels=20, filters=37), "winograd5"),
        (conv(12, 11, channels=20, filters=37), "winograd6"),
        (conv(16, 16, channels=20, filters=37, stride=2), "winograd2"),
        (conv(16, 16, channels=20, filters=37, stride=2), "winograd4"),
        (conv(9, 8, channels=40, filters=74, groups=2), "winograd2"),
        (conv(9, 8, channels=40, filters=74, groups=2), "winograd4"),
        (conv(9, 9, channels=16, filters=20, kernel=(5, 5), pad=2), "winograd4"),
        (conv(3, 3, batch=6, channels=20, filters=37), "winograd3"),
        (conv(6, 6, batch=12, channels=20, filters=37), "winograd6"),
    ],
)
def test_scheduled_machine_code(threads: int, algorithm: str, case: Task) -> None:
    target = host_target(threads)
    rule = rule_for(case, target)
    space = rule.space(case, target)
    rows = space.sample(np.random.default_rng(0), 400)
    configs = [c for c in map(space.config, rows) if c["algorithm"] == algorithm]
    arrays = random_inputs(case, 2)
    wanted = evaluate_task(case, arrays)
    for config in configs[:3]:
        program = apply_schedule(build_program(case), rule.schedule(case, target, config))
        got = run_kernel(case, program, target, arrays)
        assert np.abs(got - wanted).max() < 1e-4 * np.abs(wanted).max(), config
    assert configs


@pytest.mark.parametrize(("m", "r"), [(2, 3), (4, 3), (5, 3), (6, 3), (2, 5), (4, 5)])
@pytest.mark.parametrize("depth", [3, 64, 512])
def test_all_tiles_are_accurate(m: int, r: int, depth: int) -> None:
    """Far inside the budget of 1e-3 of the largest value, however deep the sums are."""
    outputs, filters, inputs = (np.asarray(t, np.float32) for t in transforms(m, r))
    rng = np.random.default_rng(depth)
    data = np.maximum(rng.standard_normal((12, m + r - 1, m + r - 1, depth)), 0).astype("f4")
    taps = rng.standard_normal((r, r, depth, 8)).astype("f4")
    wide = np.lib.stride_tricks.sliding_window_view(data.astype("f8"), (r, r), (1, 2))
    wanted = np.einsum("tyxcab,abco->tyxo", wide, taps)
    both = np.einsum("ia,jb,abco->ijco", filters, filters, taps)
    tiles = np.einsum("ia,jb,tabc->ijtc", inputs, inputs, data)
    got = np.einsum("yi,xj,ijto->tyxo", outputs, outputs, tiles @ both)
    assert np.abs(got - wanted).max() < 3e-5 * np.abs(wanted).max()


def offered(case: Task) -> list[str]:
    algorithm = rule_for(case, host_target()).space(case, host_target()).params[0]
    return [str(c) for c in algorithm.choices if str(c).startswith("winograd")]


def test_tiles_of_other_shapes_are_for_stride_1() -> None:
    case = conv(24, 24, channels=16, filters=16, stride=2)
    assert offered(case) == ["winograd2", "winograd4"]


def test_tiles_are_offered_as_far_as_the_data_has_zeros() -> None:
    """The halo reaches as far as tiles of 4 x 4: to 8 rows here, where 5 x 5 would take 10."""
    assert "winograd5" not in offered(conv(7, 7, channels=16, filters=16))
    assert "winograd5" in offered(conv(14, 14, channels=16, filters=16))


@pytest.mark.parametrize(("side", "algorithm"), [(14, "winograd5"), (24, "winograd6")])
def test_tiles_that_divide_an_image_are_the_default(side: int, algorithm: str) -> None:
    case, target = conv(side, side, channels=128, filters=128), host_target()
    assert cost_model.default(case, Machine.of(target))["algorithm"] == algorithm


def test_few_tiles_of_many_channels_take_few_weights() -> None:
    """Four tiles of 4 x 4 would wait for 36 matrices of weights; eight of 4 x 2 need 24."""
    case, target = conv(7, 7, channels=512, filters=512), host_target()
    assert cost_model.default(case, Machine.of(target))["algorithm"] == "winograd4x2"


def test_blocks_of_several_images_read_weights_once_for_all() -> None:
    """Else each of these images of one tile would stream all of the weights."""
    case, target = conv(6, 6, batch=36, channels=256, filters=256), host_target()
    config = cost_model.default(case, Machine.of(target))
    assert config["algorithm"] == "winograd6"
    assert config.number("block") > 1


def test_images_of_a_block_divide_the_batch() -> None:
    with pytest.raises(ScheduleError, match="4 images do not divide the 6"):
        apply(conv(8, 8, batch=6), block_h=2, block_w=2, together=4)


def test_points_of_a_tile_lie_in_different_cache_sets() -> None:
    program = apply(conv(8, 8, channels=32, filters=32), block_h=2, block_w=2)
    scratch = [s.buffer for s in walk(program.body) if isinstance(s, Alloc)]
    steps = [b.strides[1] * 4 for b in scratch if b.scope == "scratch"]
    assert len(steps) == 2
    assert all(step % 128 == 64 for step in steps)


def test_strict_targets_are_offered_direct_code_only() -> None:
    case = conv(8, 8)
    target = host_target().with_accuracy("strict")
    algorithm = rule_for(case, target).space(case, target).params[0]
    assert algorithm.choices == ("direct",)


def apply(case: Task, **fields: int) -> Program:
    wanted = {"tile_h": 4, "tile_w": 4, "block_h": 1, "block_w": 1, "lanes": 2} | fields
    return STEPS.get("winograd")(buffer="t0", **wanted).apply(merged(case))


def test_a_missing_halo_is_refused() -> None:
    case = conv(6, 6)
    values = tuple(
        value("i0", v.type.shape, pads=((0, 0), (1, 1), (1, 1), (0, 0))) if v.name == "i0" else v
        for v in case.values
    )
    with pytest.raises(ScheduleError, match="needs a halo"):
        apply(Task(nodes=case.nodes, values=values, anchor=0))


def test_a_block_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ScheduleError, match="does not divide"):
        apply(conv(8, 8), block_h=3)


def test_configs_name_blocks_that_exist() -> None:
    case = conv(8, 8, channels=16, filters=16)
    target = host_target()
    rule = rule_for(case, target)
    config = dict(cost_model.default(case, Machine.of(target), rule).items)
    assert rule.space(case, target).contains(Config(tuple(config.items())))
    config["block"] = 3
    assert not rule.space(case, target).contains(Config(tuple(config.items())))


@pytest.mark.parametrize(
    ("m", "r", "stride", "before", "after"),
    [(2, 3, 1, 8, 8), (4, 3, 1, 30, 22), (6, 3, 1, 68, 44), (2, 7, 1, 48, 36), (4, 3, 2, 25, 23)],
)
def test_what_points_of_both_signs_share_is_computed_once(
    m: int, r: int, stride: int, before: int, after: int
) -> None:
    outputs, _, inputs = transforms(m, r, stride)
    for matrix in (outputs, inputs):
        combine, parts = factored(matrix)
        assert np.array_equal(np.array(combine) @ np.array(parts), np.array(matrix))
    assert sum(additions((matrix,)) for matrix in (outputs, inputs)) == before
    assert sum(additions(factored(matrix)) for matrix in (outputs, inputs)) == after
