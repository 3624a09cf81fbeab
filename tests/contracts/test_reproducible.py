"""Accuracy reproducible: the bits of a task's results are those of every config, number of threads
and width of vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.compiler.this_machine import runs_here
from autotune.errors import TargetError
from autotune.frontend import load_model
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from benchmarks.correctness.reproducible import model_digests, variants
from search_spaces.rules import rule_for
from tests.contracts.test_rules import CPU_TASKS, arrays_of, default
from tests.networks import network
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value

TARGETS = [
    load_target(name, threads).with_accuracy("reproducible")
    for name, threads in itertools.product(("x86-64-v3", "x86-64-v4"), (1, 2))
]
SLOWER = ("encoder_small", "squeezenet")
ATTENTION = "attention"
"""Not a task of this accuracy: its products and its softmax are."""


@pytest.fixture(scope="module")
def targets() -> list[Target]:
    return [target for target in TARGETS if runs_here(target)]


FAST = (
    "argmax of columns", "avg pool", "batched", "conv 1x1", "conv 3x3 residual", "conv stride",
    "depthwise", "large windows of planes", "layer_norm", "matmul", "matmul of bytes",
    "matmul of inputs", "max pool of planes", "mean of affine", "mean pool of planes",
    "scan of rows", "scatter", "softmax", "softmax of columns", "sums over far rows", "top_k",
    "windows of planes",
)  # fmt: skip
"""Tasks of every rule and kind of sum; all others, too, have many configs among the slow tests."""
MANY = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        *((name, 1) for name in FAST),
        *(pytest.param(name, 40, marks=MANY) for name in sorted(CPU_TASKS.keys() - {ATTENTION})),
    ],
)
def test_the_bits_are_the_same(targets: list[Target], name: str, configs: int) -> None:
    made = CPU_TASKS[name]
    arrays, want = arrays_of(made)
    found = set()
    for seed, target in enumerate(targets):
        rule = rule_for(made, target)
        space = rule.space(made, target)
        rows = space.sample(np.random.default_rng(seed), configs)
        for config in (default(rule, made, target), *(space.config(row) for row in rows)):
            schedule = rule.schedule(made, target, config)
            out = run_kernel(made, apply_schedule(build_program(made), schedule), target, arrays)
            assert_close(out, want, 1e-4)
            found.add(np.ascontiguousarray(out).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    "name",
    ["tiny", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOWER)],
)
def test_a_models_bits_are_the_same(targets: list[Target], name: str) -> None:
    """On every target, without a log and by logs of random schedules and times."""
    data = network(name).SerializeToString()
    found = model_digests(data, logs=1)
    assert len(found) >= 2 * len(targets)
    assert len(set(found.values())) == 1


@pytest.mark.slow
def test_logs_are_followed_and_layouts_by_them(targets: list[Target]) -> None:
    """So that the test before this one sees models that differ in more than their target."""
    data = network("tiny").SerializeToString()
    made = [model for _, model in variants(load_model(data), data, logs=1, seed=0)]
    sources = [{k.source for k in model.image.kernels} for model in made]
    assert sources[::2] == [{"default"}] * len(targets)
    assert all("record" in each for each in sources[1::2])


@pytest.mark.parametrize("op", ["erf", "tanh", "exp", "sigmoid", "gelu", "sqrt", "log"])
def test_element_functions_round_alike(targets: list[Target], op: str) -> None:
    made = task([node(op, "i0", "o0")], value("i0", (3, 41)), value("o0", (3, 41)))
    arrays, _ = arrays_of(made)
    found = set()
    for target in targets:
        rule = rule_for(made, target)
        schedule = rule.schedule(made, target, default(rule, made, target))
        out = run_kernel(made, apply_schedule(build_program(made), schedule), target, arrays)
        found.add(np.ascontiguousarray(out).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", ["c", "cortex-a72", "cuda", "riscv64-v"])
def test_targets_that_it_is_not_for_are_refused(name: str) -> None:
    with pytest.raises(TargetError, match="is for x86-64 with AVX2 and FMA, or AVX-512, not for"):
        load_target(name).with_accuracy("reproducible")


def test_other_precisions_are_refused() -> None:
    target = load_target("x86-64-v3").with_accuracy("reproducible")
    with pytest.raises(TargetError, match="precision float32, not bfloat16; take strict"):
        target.with_precision("bf16")
    assert target.with_accuracy("normal").lanes() == load_target("x86-64-v3").lanes()
