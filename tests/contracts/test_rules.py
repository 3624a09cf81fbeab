"""What every rule keeps to: configs are correct programs, features finite, defaults valid."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.schedule import Schedule, apply_schedule, schedule_from_json, schedule_to_json
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Attr, Task
from cost_model.features import features
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule
from tests.contracts.plane_tasks import PLANES
from tests.interpreter.verify import verify
from tests.unit.attentions import attention
from tests.unit.codegen.kernels import assert_close, matmul, node, run_kernel, task, unary, value

SAMPLED = 6
Shape = tuple[int, ...]


def conv(x: Shape, w: Shape, out: Shape, pad: int = 0, residual: bool = False, **a: Attr) -> Task:
    """conv2d, bias, optional residual, relu."""
    nodes = [node("conv2d", "i0 c0", "t0", pads=(pad,) * 4, **a), node("add", "t0 c1", "t1")]
    values = [
        value("i0", x, pads=((0, 0), (pad, pad), (pad, pad), (0, 0))),
        value("c0", w),
        value("c1", out[-1:]),
        value("t0", out),
        value("t1", out),
    ]
    if residual:
        nodes.append(node("add", "t1 i1", "t2"))
        values += [value("i1", out), value("t2", out)]
    nodes.append(node("relu", "t2" if residual else "t1", "o0"))
    return task(nodes, *values, value("o0", out))


def batched(m: int, k: int, n: int) -> Task:
    return task(
        [node("matmul", "i0 i1", "o0", transpose_b=True)],
        value("i0", (3, m, k)),
        value("i1", (3, n, k)),
        value("o0", (3, m, n)),
    )


def batch_of_rows(rows: int, k: int, n: int) -> Task:
    """Products of single rows, of one matrix all."""
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (3, rows, 1, k)),
        value("c0", (k, n)),
        value("o0", (3, rows, 1, n)),
    )


def pool(op: str) -> Task:
    return task(
        [node(op, "i0", "o0", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 0, 1))],
        value("i0", (2, 7, 5, 19)),
        value("o0", (2, 3, 3, 19)),
    )


def layer_norm(*shape: int, axis: int) -> Task:
    scale = shape[axis:]
    return task(
        [node("layer_norm", "i0 c0 c1", "o0", axis=axis, epsilon=1e-5)],
        value("i0", shape),
        value("c0", scale),
        value("c1", scale),
        value("o0", shape),
    )


def mean_of_affine() -> Task:
    """Global pooling of what is computed on the way."""
    made = task(
        [
            node("mul", "i0 c0", "t0"),
            node("relu", "t0", "t1"),
            node("reduce_mean", "t1", "o0", axes=(1, 2), keepdims=True),
        ],
        value("i0", (2, 3, 5, 37)),
        value("c0", (37,)),
        value("t0", (2, 3, 5, 37)),
        value("t1", (2, 3, 5, 37)),
        value("o0", (2, 1, 1, 37)),
    )
    return dataclasses.replace(made, anchor=2)


def scatter(
    x: Shape,
    places: Shape,
    updates: Shape,
    reduction: str = "add",
    scaled: bool = False,
    **a: Attr,
) -> Task:
    """Updates, or those by a factor each, that join x at computed places."""
    first = [node("mul", "i2 i3", "t0")] if scaled else []
    made = task(
        [
            *first,
            node("scatter", f"i0 i1 {'t0' if scaled else 'i2'}", "o0", reduction=reduction, **a),
        ],
        value("i0", x),
        value("i1", places, "int64"),
        value("i2", updates),
        *([value("i3", (*updates[:-1], 1)), value("t0", updates)] if scaled else []),
        value("o0", x),
    )
    return dataclasses.replace(made, anchor=len(first))


def messages() -> Task:
    """Rows that are gathered, multiplied and added at computed places to one number."""
    made = task(
        [
            node("gather", "i0 i1", "t0", axis=0),
            node("mul", "t0 i2", "t1"),
            node("scatter", "c0 i3 t1", "o0", axis=0, extent=9, reduction="add"),
        ],
        *(value("i0", (6, 37)), value("i1", (40,), "int64"), value("i2", (40, 1))),
        *(value("i3", (40, 1), "int32"), value("c0", ())),
        *(value("t0", (40, 37)), value("t1", (40, 37)), value("o0", (9, 37))),
    )
    return dataclasses.replace(made, anchor=2)


def top_k(rows: int, extent: int, count: int) -> Task:
    return task(
        [node("top_k", "i0", "o0", count=count)],
        value("i0", (rows, extent), "int64"),
        value("o0", (rows, count), "int64"),
    )


TASKS: dict[str, Task] = {
    "conv 3x3": conv((1, 6, 7, 5), (3, 3, 5, 19), (1, 6, 7, 19), pad=1),
    "conv 3x3 residual": conv((1, 8, 8, 8), (3, 3, 8, 16), (1, 8, 8, 16), pad=1, residual=True),
    "conv stride": conv((2, 9, 8, 3), (3, 3, 3, 17), (2, 4, 3, 17), strides=(2, 2)),
    "conv dilated": conv((1, 9, 9, 4), (3, 3, 4, 8), (1, 5, 5, 8), dilations=(2, 2)),
    "conv of one channel": conv((1, 10, 11, 1), (3, 3, 1, 17), (1, 8, 9, 17)),
    "conv 1x1": conv((1, 5, 5, 13), (1, 1, 13, 34), (1, 5, 5, 34)),
    "conv groups": conv((1, 5, 5, 6), (3, 3, 3, 8), (1, 5, 5, 8), pad=1, groups=2),
    "depthwise": conv((1, 6, 6, 18), (3, 3, 1, 18), (1, 6, 6, 18), pad=1, groups=18),
    "depthwise strided": conv(
        (1, 7, 29, 16), (3, 3, 1, 16), (1, 4, 15, 16), pad=1, groups=16, strides=(2, 2)
    ),
    "normalized over channels": task(
        [node("lrn", "i0", "o0", size=5)], value("i0", (1, 5, 6, 19)), value("o0", (1, 5, 6, 19))
    ),
    "depthwise 7x7": conv((1, 7, 6, 18), (7, 7, 1, 18), (1, 7, 6, 18), pad=3, groups=18),
    "conv of one": conv((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    "matmul": matmul(7, 13, 33),
    "matmul row": matmul(1, 24, 40),
    "matmul of a batch of rows": batch_of_rows(40, 24, 40),
    "matmul of inputs": matmul(6, 8, 20, constant=False),
    "matmul of bytes": task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (3, 2, 8)),
        value("c0", (3, 8, 40), "int8"),
        value("o0", (3, 2, 40)),
    ),
    "batched": batched(5, 8, 17),
    "max pool": pool("max_pool2d"),
    "avg pool": pool("avg_pool2d"),
    "mean of affine": mean_of_affine(),
    "sums over far rows": task(
        [node("reduce_sum", "i0", "o0", axes=(0,), keepdims=False)],
        value("i0", (1100, 1000)),
        value("o0", (1000,)),
    ),
    "mean along rows": task(
        [node("reduce_mean", "i0", "o0", axes=(2,), keepdims=True)],
        value("i0", (1, 2, 4, 9)),
        value("o0", (1, 2, 1, 9)),
    ),
    "softmax": unary("softmax", (2, 3, 37), axis=-1),
    "softmax of columns": unary("softmax", (5, 18), axis=0),
    "layer_norm": layer_norm(2, 3, 37, axis=2),
    "layer_norm of all": layer_norm(1, 6, 37, axis=0),
    "gelu": unary("gelu", (3, 41)),
    "ints": unary("neg", (37,), "int64"),
    "bools": unary("not", (3, 19), "bool"),
    "scatter": scatter((9, 37), (40, 1), (40, 37)),
    "scatter of rows": scatter((9, 64), (40, 1), (40, 64), "max", scaled=True),
    "scatter that replaces": scatter((9, 37), (20, 1), (20, 37), "none"),
    "scatter of elements": scatter((3, 5, 18), (3, 11, 18), (3, 11, 18), "min", axis=1),
    "scatter of messages": messages(),
    "scatter of numbers": scatter((19,), (40,), (40,), "mul"),
    "scatter along the last": scatter((4, 19), (4, 23), (4, 23), axis=-1),
    "top_k": top_k(2, 37, 5),
    "top_k of all": top_k(1, 19, 19),
    "softmax over channels first": unary("softmax", (2, 5, 3, 37), axis=1),
    "argmax of columns": task(
        [node("argmax", "i0", "o0", axis=1, keepdims=False)],
        value("i0", (2, 5, 7, 19)),
        value("o0", (2, 7, 19), "int64"),
    ),
    "log_softmax of columns": task(
        [node("log_softmax", "i0", "t0", axis=0), node("relu", "t0", "o0")],
        value("i0", (5, 40)),
        value("t0", (5, 40)),
        value("o0", (5, 40)),
    ),
    "scan of rows": unary("scan", (19, 23, 1), combine="sum", exclusive=0, reverse=0),
    "scan of columns": unary("scan", (2, 5, 83), combine="prod", exclusive=1, reverse=1),
    "scan of wide columns": unary("scan", (2, 9, 1600), combine="sum", exclusive=0, reverse=0),
    **PLANES,
    "max pool of planes": task(
        [node("max_pool2d", "i0", "o0", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))],
        value("i0", (3, 9, 83, 1)),
        value("o0", (3, 5, 42, 1)),
    ),
    "mean pool of planes": task(
        [node("avg_pool2d", "i0", "o0", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))],
        value("i0", (3, 9, 43, 1)),
        value("o0", (3, 5, 22, 1)),
    ),
    "mean pool of planes, and more": task(
        [
            node("avg_pool2d", "i0", "t0", kernel=(3, 3), pads=(1, 1, 1, 1)),
            node("mul", "t0 i1", "t1"),
            node("relu", "t1", "o0"),
        ],
        value("i0", (2, 5, 21, 1)),
        value("i1", (2, 5, 21, 1)),
        value("t0", (2, 5, 21, 1)),
        value("t1", (2, 5, 21, 1)),
        value("o0", (2, 5, 21, 1)),
    ),
    "resize": task(
        [node("resize", "i0", "o0", out_shape=(2, 6, 74), mode="linear", coordinate="half_pixel")],
        value("i0", (2, 3, 37)),
        value("o0", (2, 6, 74)),
    ),
    "resize without a pattern": task(
        [node("resize", "i0", "o0", out_shape=(5, 75), mode="linear", coordinate="align_corners")],
        value("i0", (3, 40)),
        value("o0", (5, 75)),
    ),
    "transpose": task(
        [node("transpose", "i0", "o0", perm=(0, 2, 1))],
        value("i0", (2, 37, 45)),
        value("o0", (2, 45, 37)),
    ),
    "transpose of bytes": task(
        [node("transpose", "i0", "o0", perm=(0, 2, 1))],
        value("i0", (2, 70, 39), "uint8"),
        value("o0", (2, 39, 70), "uint8"),
    ),
    "block_max": task(
        [node("block_max", "i0", "o0", depth=3, width=19, largest=False)],
        value("i0", (2, 131)),
        value("o0", (2, 2, 19), "int64"),
    ),
}
HOST = host_target(1)
CPU_TASKS = TASKS | {"attention": attention((1, 2), 18, 40, 8, 19, mask=(1, 1, 1, 40))}
"""What only CPUs are given as one task too."""
NAMED = [(r, n) for r in RULES.parts() for n, made in CPU_TASKS.items() if r.matches(made, HOST)]
each_pair = pytest.mark.parametrize(
    ("rule", "made"),
    [(rule, CPU_TASKS[name]) for rule, name in NAMED],
    ids=[f"{rule.name}: {name}" for rule, name in NAMED],
)
TARGETS = [HOST, load_target("x86-64-v3"), load_target("cortex-a72")]


@functools.cache
def arrays_of(made: Task) -> tuple[dict[str, Array], Array]:
    arrays = random_inputs(made, 0)
    return arrays, evaluate_task(made, arrays)


@functools.cache
def default(rule: Rule, made: Task, target: Target) -> Config:
    return cost_model.default(made, Machine.of(target), rule)


@functools.cache
def sampled(rule: Rule, made: Task, target: Target, count: int = SAMPLED) -> list[Config]:
    """The default and some random configs."""
    space = rule.space(made, target)
    rows = space.sample(np.random.default_rng(0), count)
    return [default(rule, made, target), *(space.config(row) for row in rows)]


@functools.cache
def scheduled(rule: Rule, made: Task, target: Target, config: Config) -> Schedule:
    """Writing a schedule applies it: what several tests look at is written once."""
    return rule.schedule(made, target, config)


def profile(target: Target) -> DeviceProfile:
    levels = (
        CacheLevel(name="L1", size_bytes=target.l1_bytes, load_bytes_per_s=2e11),
        CacheLevel(name="L2", size_bytes=target.l2_bytes, load_bytes_per_s=1e11),
        CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=1e10),
    )
    return DeviceProfile(
        device="a", target=target, peak_flops=1e11, levels=levels, parallel_region_s=1e-6
    )


def test_every_rule_has_tasks() -> None:
    without = {n for n in RULES if not n.startswith("gpu_")} - {rule.name for rule, _ in NAMED}
    assert not without, "add tasks that they match to TASKS"


@each_pair
def test_every_config_is_correct(rule: Rule, made: Task) -> None:
    arrays, want = arrays_of(made)
    for config in sampled(rule, made, HOST):
        program = apply_schedule(build_program(made), scheduled(rule, made, HOST, config))
        verify(program)
        assert_close(run_kernel(made, program, HOST, arrays), want, 1e-4)


@each_pair
def test_every_config_has_a_schedule_for_two_threads(rule: Rule, made: Task) -> None:
    target = host_target(2)
    for config in sampled(rule, made, target, 2 * SAMPLED):
        assert rule.schedule(made, target, config)


@each_pair
def test_the_default_is_correct_on_two_threads(rule: Rule, made: Task) -> None:
    target, (arrays, want) = host_target(2), arrays_of(made)
    program = apply_schedule(
        build_program(made),
        rule.schedule(made, target, default(rule, made, target)),
    )
    assert_close(run_kernel(made, program, target, arrays), want, 1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@each_pair
def test_the_default_is_in_the_space(rule: Rule, made: Task, target: Target) -> None:
    assert rule.space(made, target).contains(default(rule, made, target))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@each_pair
def test_the_prior_is_finite_and_positive(rule: Rule, made: Task, target: Target) -> None:
    space = rule.space(made, target)
    rows = space.sample(np.random.default_rng(1), 30)
    prior = rule.prior(made, Machine.of(target), space.configs(rows))
    assert prior.cycles.shape == (len(rows),)
    assert np.all(np.isfinite(prior.cycles))
    assert np.all(prior.cycles > 0)
    assert 0 < prior.peak_cycles < np.inf


@each_pair
def test_what_is_predicted_of_configs_is_what_is_predicted_of_their_columns(
    rule: Rule, made: Task
) -> None:
    space, machine = rule.space(made, HOST), Machine.of(HOST)
    rows = space.sample(np.random.default_rng(1), 3)
    configs = [space.config(row) for row in rows]
    one, two = (
        cost_model.predict(made, machine, given, rule).seconds
        for given in (configs, space.configs(rows))
    )
    np.testing.assert_array_equal(one, two)


@each_pair
def test_features_are_finite_and_the_prior_positive(rule: Rule, made: Task) -> None:
    space = rule.space(made, HOST)
    rows = space.sample(np.random.default_rng(1), 30)
    machine = Machine.of(HOST, profile(HOST))
    found = features(cost_model.predict(made, machine, space.configs(rows), rule))
    assert found.values.shape == (len(rows), len(found.names))
    assert np.all(np.isfinite(found.values))
    assert np.all(found.prior_s > 0)


@each_pair
def test_schedules_survive_json(rule: Rule, made: Task) -> None:
    for config in sampled(rule, made, HOST)[:3]:
        schedule = scheduled(rule, made, HOST, config)
        assert schedule_from_json(schedule_to_json(schedule)) == schedule
