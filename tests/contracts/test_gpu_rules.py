"""What every rule for GPUs keeps to, seen by the interpreter: no device is needed.

Configs are correct programs without races, within the target's limits; features are finite.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.program.launch import launches
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json, schedule_to_json
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from cost_model.features import features
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule, rule_for
from tests.contracts.test_rules import (
    TASKS,
    arrays_of,
    batch_of_rows,
    batched,
    conv,
    default,
    profile,
    sampled,
)
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import is_gpu, verify
from tests.unit.codegen.kernels import assert_close, matmul, node, task, unary, value
from tests.unit.codegen.test_int8 import PLAIN as BYTES
from tests.unit.codegen.test_int8 import exact


def mean_of_rows() -> Task:
    """A reduction over two dimensions, with something before and after."""
    made = task(
        [
            node("mul", "i0 i0", "t0"),
            node("reduce_mean", "t0", "t1", axes=(1, 2), keepdims=False),
            node("sqrt", "t1", "o0"),
        ],
        value("i0", (3, 5, 16)),
        value("t0", (3, 5, 16)),
        value("t1", (3,)),
        value("o0", (3,)),
    )
    return dataclasses.replace(made, anchor=1)


CASES = TASKS | {
    "conv 3x3": conv((1, 3, 4, 5), (3, 3, 5, 6), (1, 3, 4, 6), pad=1),
    "conv 3x3 residual": conv((1, 4, 3, 8), (3, 3, 8, 8), (1, 4, 3, 8), pad=1, residual=True),
    "conv of one channel per group": conv((1, 4, 3, 6), (3, 3, 3, 2), (1, 4, 3, 2), 1, groups=2),
    "softmax of long rows": unary("softmax", (3, 160), axis=-1),
    "matmul of a batch of rows": batch_of_rows(5, 24, 40),
    "mean of rows": mean_of_rows(),
    "whole tensor": task(
        [node("reduce_sum", "i0", "o0", axes=(0, 1), keepdims=False)],
        value("i0", (9, 31)),
        value("o0", ()),
    ),
}
"""The interpreter is slow: smaller convolutions, fewer rows."""
TARGETS = [load_target(name) for name in ("opencl", "sm_80", "sm_90a")]
NAMED = [
    (rule, name)
    for rule in RULES.parts()
    for name, made in CASES.items()
    if rule.matches(made, TARGETS[1])
]
each_pair = pytest.mark.parametrize(
    ("rule", "made"),
    [(rule, CASES[name]) for rule, name in NAMED],
    ids=[f"{rule.name}: {name}" for rule, name in NAMED],
)
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def program_of(rule: Rule, made: Task, target: Target, config: Config) -> Program:
    return apply_schedule(build_program(made), rule.schedule(made, target, config))


def check(program: Program, made: Task, target: Target) -> None:
    """Correct, free of races, printable, and small enough for the target."""
    verify(program)
    assert is_gpu(program)
    for launch in launches(program):
        assert launch.threads <= target.max_threads
        assert launch.shared_bytes <= target.shared_bytes
    assert parse_program(print_program(program)) == program
    arrays, want = arrays_of(made)
    assert_close(run(program, arrays), want, 1e-4)


def test_every_gpu_rule_has_tasks() -> None:
    assert {rule.name for rule, _ in NAMED} >= {n for n in RULES if n.startswith("gpu_")}


@each_target
def test_every_task_has_a_rule_of_the_target_s_kind(target: Target) -> None:
    for made in CASES.values():
        assert rule_for(made, target).name.startswith(("gpu_", "scatter"))


@each_pair
def test_the_default_is_correct_where_a_warp_is_one_thread(rule: Rule, made: Task) -> None:
    target = TARGETS[0]
    check(
        program_of(rule, made, target, default(rule, made, target)),
        made,
        target,
    )


@each_pair
def test_every_config_is_correct(rule: Rule, made: Task) -> None:
    target = TARGETS[1]
    for config in sampled(rule, made, target)[:2]:
        check(program_of(rule, made, target, config), made, target)


@each_target
@each_pair
def test_the_default_is_in_the_space(rule: Rule, made: Task, target: Target) -> None:
    assert rule.space(made, target).contains(default(rule, made, target))


@each_target
@each_pair
def test_features_are_finite_and_the_prior_positive(
    rule: Rule, made: Task, target: Target
) -> None:
    space = rule.space(made, target)
    rows = space.sample(np.random.default_rng(1), 30)
    machine = Machine.of(target, profile(target))
    found = features(cost_model.predict(made, machine, space.configs(rows), rule))
    assert np.all(np.isfinite(found.values))
    assert np.all(found.prior_s > 0)
    prior = rule.prior(made, machine, space.configs(rows))
    assert np.all(np.isfinite(prior.cycles))
    assert np.all(prior.cycles > 0)
    assert 0 < prior.peak_cycles < np.inf


@each_pair
def test_schedules_survive_json(rule: Rule, made: Task) -> None:
    schedule = rule.schedule(made, TARGETS[1], default(rule, made, TARGETS[1]))
    assert schedule_from_json(schedule_to_json(schedule)) == schedule


NARROW = load_target("sm_80").with_precision("bfloat16")
TENSOR = {
    "rows and columns with tails": matmul(20, 24, 20),
    "weights that are activations": batched(18, 20, 9),
    "convolution": conv((1, 4, 3, 16), (3, 3, 16, 12), (1, 4, 3, 12), pad=1, residual=True),
    "window flattened": conv((1, 4, 5, 3), (3, 3, 3, 8), (1, 4, 5, 8), pad=1),
}


@pytest.mark.parametrize(
    ("algorithm", "stages"), [("bf16", 1), ("bf16", 2), ("tf32", 2), ("f16", 2)]
)
@pytest.mark.parametrize("made", TENSOR.values(), ids=TENSOR)
def test_tensor_cores_are_correct_to_their_precision(
    made: Task, algorithm: str, stages: int
) -> None:
    narrow = load_target("sm_80").with_precision(algorithm)
    rule = rule_for(made, narrow)
    space = rule.space(made, narrow)
    tile = {"tile_m": 1, "tile_n": 1, "threads_m": 1, "threads_n": 2, "depth": 16}
    wanted = {"algorithm": algorithm, "unroll": 1, "stages": stages, **tile}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = program_of(rule, made, NARROW, config)
    verify(program)
    assert "mma " in print_program(program)
    # Rounded on the way, an element cannot be copied by itself.
    assert "wait 0" in print_program(program) or algorithm != "tf32"
    assert parse_program(print_program(program)) == program
    arrays, want = arrays_of(made)
    assert_close(run(program, arrays), want, 1e-2 if algorithm == "bf16" else 2e-3)


@pytest.mark.parametrize("name", BYTES)
def test_tensor_cores_add_up_bytes_exactly(name: str) -> None:
    made, target = BYTES[name], TARGETS[1]
    rule = rule_for(made, target)
    tile = {"tile_m": 1, "tile_n": 1, "threads_m": 1, "threads_n": 2, "depth": 32}
    wanted = {"algorithm": "int8", "unroll": 1, "stages": 1, "layout": "swizzled", **tile}
    space = rule.space(made, target)
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = program_of(rule, made, target, config)
    verify(program)
    assert "mma " in print_program(program)
    arrays = random_inputs(made, 3)
    assert np.array_equal(run(program, arrays), exact(made, arrays))


def test_tensor_cores_are_offered_only_where_rounding_is_allowed() -> None:
    made = TENSOR["convolution"]
    for target in TARGETS:
        choices = rule_for(made, target).space(made, target).params[0].choices
        assert not set(choices) & {"bf16", "tf32", "f16", "wgmma"}
    assert "bf16" in rule_for(made, NARROW).space(made, NARROW).params[0].choices


SPLIT = {
    "product": matmul(9, 24, 20),
    "batch": batched(8, 24, 9),
    "convolution": conv((1, 4, 3, 8), (3, 3, 8, 6), (1, 4, 3, 6), pad=1, residual=True),
}


@pytest.mark.parametrize(("split", "stages"), [(3, 1), (3, 2), (1, 3)])
@pytest.mark.parametrize("made", SPLIT.values(), ids=SPLIT)
def test_parts_of_sums_and_steps_ahead_are_correct(made: Task, split: int, stages: int) -> None:
    target = TARGETS[1]
    rule = rule_for(made, target)
    space = rule.space(made, target)
    tile = {"tile_m": 2, "tile_n": 2, "threads_m": 8, "threads_n": 4, "depth": 4}
    wanted = tile | {"unroll": 1, "split": split, "stages": stages}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = program_of(rule, made, target, config)
    assert len(launches(program)) == (2 if split > 1 else 1)
    check(program, made, target)


@pytest.mark.parametrize("rows", [1, 3])
def test_blocks_share_a_long_row(rows: int) -> None:
    made = task(
        [node("reduce_max", "i0", "o0", axes=(1,), keepdims=True)],
        value("i0", (rows, 700)),
        value("o0", (rows, 1)),
    )
    target = TARGETS[1]
    rule = rule_for(made, target)
    config = Config((("threads", 32), ("vector", 4), ("split", 4)))
    assert rule.space(made, target).contains(config)
    program = program_of(rule, made, target, config)
    # Parts are whole lines of memory: three hold the row.
    assert [launch.grid[0] for launch in launches(program)] == [3 * rows, rows]
    check(program, made, target)


FILTERED = {
    "sums after": conv((1, 8, 4, 8), (3, 3, 8, 8), (1, 8, 4, 8), pad=1, residual=True),
    "two images": conv((2, 4, 4, 8), (3, 3, 8, 6), (2, 4, 4, 6), pad=1),
}


@pytest.mark.parametrize("made", FILTERED.values(), ids=FILTERED)
def test_winograd_is_three_launches(made: Task) -> None:
    target, side = TARGETS[1], 2
    rule = rule_for(made, target)
    space = rule.space(made, target)
    tile = {"tile_m": 2, "tile_n": 2, "threads_m": 8, "threads_n": 4, "depth": 4}
    wanted = tile | {"algorithm": f"winograd{side}", "unroll": 1, "stages": 2}
    config = Config(tuple((p.name, wanted.get(p.name, p.choices[0])) for p in space.params))
    assert space.contains(config)
    program = program_of(rule, made, target, config)
    points = (side + 2) ** 2
    assert [launch.grid[0] % points for launch in launches(program)] == [1, 0, 1]
    check(program, made, target)


def test_strict_accuracy_is_direct() -> None:
    made = FILTERED["two images"]
    for target in TARGETS:
        strict = target.with_accuracy("strict")
        assert "winograd4" in rule_for(made, target).space(made, target).params[0].choices
        assert rule_for(made, strict).space(made, strict).params[0].choices == ("direct",)
