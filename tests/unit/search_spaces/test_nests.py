"""The rule of everything else: reductions, rows and elementwise chains as whole kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.ir import Alloc, For, If, Store, walk
from autotune.program.rewrite import find_loop, stores_of
from autotune.schedule import apply_schedule
from autotune.schedule.memory.prefetch import PrefetchNext
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import RULES
from tests.unit.codegen.kernels import (
    assert_close,
    node,
    norm_of_rows,
    run_kernel,
    task,
    unary,
    value,
)

ROW = 630


def norm_of_everything() -> Task:
    """A layer norm without a loop over rows: nothing but reductions is outermost."""
    return task(
        [node("layer_norm", "i0 c0 c1", "o0", axis=0, epsilon=1e-3)],
        *(value(name, (ROW,)) for name in ("i0", "c0", "c1", "o0")),
    )


def total() -> Task:
    return task(
        [node("reduce_sum", "i0", "o0", axes=(0, 1), keepdims=False)],
        value("i0", (30, 21)),
        value("o0", ()),
    )


def computed(made: Task, config: Config, threads: int = 1) -> None:
    """Runs a task and compares the result with the reference."""
    rule, target, arrays = RULES.get("nests"), host_target(threads), random_inputs(made, 0)
    program = apply_schedule(build_program(made), rule.schedule(made, target, config))
    assert_close(run_kernel(made, program, target, arrays), evaluate_task(made, arrays), 1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [3, 33, 64, 101])
def test_any_number_of_rows_of_any_width(width: int, threads: int) -> None:
    made = norm_of_rows(2, 7, width)
    for unroll, rows, shift in ((1, 2, 1), (2, 4, 0), (4, 1, 1), (2, 4, 1)):
        items = {"unroll": unroll, "merge": 1, "rows": rows, "shift": shift}
        computed(made, Config(tuple(items.items())), threads)


@pytest.mark.parametrize("width", [13, 35, 1001])
def test_rest_of_a_row_is_alone_under_a_mask(width: int) -> None:
    made = unary("relu", (3, width))
    target, config = (
        host_target(),
        Config((("unroll", 2), ("merge", 1), ("rows", 1), ("shift", 0))),
    )
    program = apply_schedule(
        build_program(made), RULES.get("nests").schedule(made, target, config)
    )
    guarded = [
        s for s in walk(program.body) if isinstance(s, If) and len(s.bounds[0].index.terms) > 1
    ]
    assert len(guarded) <= 1
    computed(made, config)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "made", [norm_of_everything(), total(), unary("softmax", (ROW,), axis=0)], ids=lambda t: t.op
)
def test_a_reduction_of_everything_is_right_on_any_threads(made: Task, threads: int) -> None:
    rule = RULES.get("nests")
    computed(made, cost_model.default(made, Machine.of(host_target(threads)), rule), threads)


def _choices(made: Task, target: Target) -> tuple[object, ...]:
    params = RULES.get("nests").space(made, target).params
    return next(p.choices for p in params if p.name == "shift")


@pytest.mark.parametrize("rows", [8, 7])
def test_a_mean_and_a_variance_take_one_pass(rows: int) -> None:
    made, target = norm_of_rows(rows, 64), host_target()
    rule = RULES.get("nests")
    items = {"unroll": 2, "merge": 1, "rows": 4, "shift": 1}
    program = apply_schedule(
        build_program(made), rule.schedule(made, target, Config(tuple(items.items())))
    )
    inner = [s for s in walk(program.body) if isinstance(s, For) and s.kind == "vector"]
    added = [{s.buffer for s in stores_of(loop.body) if s.combine} for loop in inner]
    assert {"o0.sum.part", "o0.sq.part"} in added
    assert _choices(made, target) == (0, 1)


def test_strict_accuracy_keeps_the_two_passes() -> None:
    made, target = norm_of_rows(8, 64), host_target().with_accuracy("strict")
    assert _choices(made, target) == (0,)


def test_what_rows_share_is_loaded_once_for_two() -> None:
    made, target = norm_of_rows(8, 64), host_target()
    items = {"unroll": 1, "merge": 1, "rows": 4, "shift": 0}
    steps = RULES.get("nests").schedule(made, target, Config(tuple(items.items())))
    program = apply_schedule(build_program(made), steps)
    pair = find_loop(program, "o0_d0_row_pair")
    assert (pair.extent, pair.kind, isinstance(pair.body[0], Store)) == (2, "unroll", True)
    alone = unary("softmax", (8, 64), axis=-1)
    text = str(RULES.get("nests").schedule(alone, target, Config(tuple(items.items()))))
    assert "_pair" not in text


def ahead(made: Task, target: Target) -> list[Config]:
    """Configs whose last pass goes beside the sums of the next rows."""
    space = RULES.get("nests").space(made, target)
    rows = space.rows(space.raw_size, np.random.default_rng(0))
    configs = [space.config(row) for row in rows]
    return [c for c in configs if c.number("merge") == 2]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("accuracy", ["normal", "strict"])
@pytest.mark.parametrize("shape", [(8, 96), (2, 12, 64)])
def test_sums_of_the_next_rows_go_beside_the_last_pass(
    shape: tuple[int, ...], accuracy: str, threads: int
) -> None:
    made, target = norm_of_rows(*shape), host_target(threads).with_accuracy(accuracy)
    configs = ahead(made, target)
    assert {c.number("rows") for c in configs} >= {2}
    assert {c.number("shift") for c in configs} == ({0, 1} if accuracy == "normal" else {0})
    for config in configs:
        computed(made, config, threads)


@pytest.mark.parametrize("rows", [5, 6, 7])
def test_rows_that_make_no_block_come_last(rows: int) -> None:
    made = norm_of_rows(rows, 64)
    for config in ahead(made, host_target()):
        computed(made, config)
    assert not ahead(made, host_target(2)) or rows % 2 == 0


def test_whole_rows_between_passes_are_not_kept_twice() -> None:
    assert not ahead(unary("softmax", (8, 64), axis=-1), host_target())
    assert not ahead(norm_of_rows(8, 65), host_target())


def norm_of_rounded(rows: int, width: int) -> Task:
    """What lies before a layer norm in a quantized transformer: numbers as bytes and back."""
    chain = [
        node("mul", "i0 c0", "t0"), node("round", "t0", "t1"),
        node("clip", "t1", "t2", min=0, max=255), node("to_uint8", "t2", "t3"),
        node("to_float32", "t3", "t4"), node("add", "t4 c1", "t5"),
        node("layer_norm", "t5 c2 c3", "o0", axis=1, epsilon=1e-3),
    ]  # fmt: skip
    wide = (value(name, (rows, width)) for name in ("i0", "t0", "t1", "t2", "t4", "t5", "o0"))
    rest = (value(name, (width,)) for name in ("c0", "c1", "c2", "c3"))
    return task(chain, *wide, value("t3", (rows, width), "uint8"), *rest)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_computed_whole_before_the_rows_has_a_nest_of_its_own(threads: int) -> None:
    """Rounding is too dear to do once in each pass: that nest has no passes over rows."""
    made, target = norm_of_rounded(8, 64), host_target(threads)
    assert cost_model.default(made, Machine.of(target), RULES.get("nests"))
    configs = ahead(made, target)
    assert configs
    for config in configs[::3]:
        computed(made, config, threads)


def test_rows_that_a_cache_holds_twice_run_ahead_by_default() -> None:
    rule, target = RULES.get("nests"), replace(load_target("x86-64-v4"), l1_bytes=32768)
    chosen = {
        width: cost_model.default(norm_of_rows(128, width), Machine.of(target), rule)
        for width in (384, 4096)
    }
    assert [chosen[width].number("merge") for width in (384, 4096)] == [2, 1]


def test_far_means_cost_little_accuracy() -> None:
    made, target, rule = norm_of_rows(16, 384), host_target(), RULES.get("nests")
    rng = np.random.default_rng(0)
    x = (1e3 + rng.standard_normal((16, 384))).astype(np.float32)
    scale, bias = (rng.standard_normal(384).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    want = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-3) * scale + bias
    for config in ahead(made, target):
        program = apply_schedule(build_program(made), rule.schedule(made, target, config))
        found = run_kernel(made, program, target, {"i0": x, "c0": scale, "c1": bias})
        assert np.abs(found - want).max() < (1.5e-4 if config.number("shift") else 1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_norm_of_planes_takes_them_as_rows_and_ends_in_its_reader(threads: int) -> None:
    planes = (1, 6, 7, 9)
    made = task(
        [node("layer_norm", "i0 c0 c1", "t0", axis=2, epsilon=1e-3), node("mul", "t0 c2", "o0")],
        *(value(name, planes[2:]) for name in ("c0", "c1")), value("c2", (6, 1, 1)),
        *(value(name, planes) for name in ("i0", "t0", "o0")),
    )  # fmt: skip
    rule, target = RULES.get("nests"), host_target(threads)
    steps = rule.schedule(made, target, cost_model.default(made, Machine.of(target), rule))
    program = apply_schedule(build_program(made), steps)
    assert "t0" not in {s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)}
    assert all(fused in str(steps) for fused in ("t0_sum_r2_f", "o0_d2_f"))
    for rows, unroll in ((1, 4), (2, 2), (4, 8)):
        for shift in (0, 1):
            items = {"unroll": unroll, "merge": 1, "rows": rows, "shift": shift}
            computed(made, Config(tuple(items.items())), threads)


def softmax_of_rows(*shape: int) -> Task:
    return task(
        [node("softmax", "i0", "o0", axis=len(shape) - 1)], value("i0", shape), value("o0", shape)
    )


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (2, 101), (4, 7)])
def test_rows_of_the_next_block_are_asked_for(rows: int, width: int) -> None:
    made, rule = softmax_of_rows(2, 9, width), RULES.get("nests")
    target = replace(host_target(), l2_bytes=1 << 9)
    items = {"unroll": 1, "merge": 1, "rows": rows, "shift": 0, "prefetch": "rows"}
    config = Config(tuple(items.items()))
    assert rule.space(made, target).contains(config)
    computed(made, config)
    asked = [s for s in rule.schedule(made, target, config) if isinstance(s, PrefetchNext)]
    vectors = width > target.lanes()
    assert [s.buffer for s in asked] == (["i0"] if vectors else [])


@pytest.mark.parametrize(("rows", "wanted"), [(256, None), (4096, "rows")])
def test_rows_are_asked_for_where_they_come_from_afar(rows: int, wanted: str | None) -> None:
    target = replace(load_target("x86-64-v4"), l2_bytes=1 << 20, l3_bytes=32 << 20)
    config = cost_model.default(softmax_of_rows(rows, 512 // 4), Machine.of(target))
    assert dict(config.items).get("prefetch") == wanted
