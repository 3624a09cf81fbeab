"""Configs of the rules for GPUs on the OpenCL device that is here: PoCL where there is no GPU.

A few defaults by default, sampled configs of every task with --run-slow."""

from __future__ import annotations

import pytest

import cost_model
from autotune.machine import Machine
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule, rule_for
from tests.contracts.test_rules import TASKS, arrays_of, sampled
from tests.unit.codegen.kernels import assert_close, run_kernel

TARGET = load_target("opencl")
FAST = ("conv 3x3 residual", "depthwise", "layer_norm", "batched")
PAIRS = [(r, n) for r in RULES.parts() for n, made in TASKS.items() if r.matches(made, TARGET)]


def check(rule: Rule, made: Task, config: Config) -> None:
    program = apply_schedule(build_program(made), rule.schedule(made, TARGET, config))
    arrays, want = arrays_of(made)
    assert_close(run_kernel(made, program, TARGET, arrays), want, 1e-4)


@pytest.mark.parametrize("name", FAST)
def test_defaults_are_right(name: str) -> None:
    made = TASKS[name]
    rule = rule_for(made, TARGET)
    check(rule, made, cost_model.default(made, Machine.of(TARGET), rule))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "name"), PAIRS, ids=[f"{rule.name}: {name}" for rule, name in PAIRS]
)
def test_sampled_configs_are_right(rule: Rule, name: str) -> None:
    for config in sampled(rule, TASKS[name], TARGET)[:4]:
        check(rule, TASKS[name], config)
