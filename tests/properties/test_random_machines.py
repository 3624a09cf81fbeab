"""Any machine: every default and random configs are scheduled, compiled and right, whatever the
caches, vectors, registers and threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cost_model
from autotune.compiler.driver import compile_graph
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.machine import Machine
from autotune.measure.check import TOLERANCE
from autotune.schedule import apply_schedule
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.rules import rules_for
from tests.interpreter.verify import verify
from tests.properties.graph_strategies import feeds_for, graphs
from tests.properties.machine_strategies import any_task, image_networks, machines
from tests.properties.test_compiled import RandomRecords
from tests.unit.codegen.kernels import assert_close, run_kernel

FEW = settings(max_examples=6, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=60)
CONFIGS = 10
"""Random configs of a task, or of a whole network's tasks together."""


def check_task(made: Task, target: Target, seed: int, configs: int = CONFIGS) -> None:
    """Every rule that has the task, by its default and random configs."""
    arrays = random_inputs(made, seed)
    want = evaluate_task(made, arrays)
    for rule in rules_for(made, target):
        machine, space = Machine.of(target), rule.space(made, target)
        default = cost_model.default(made, machine, rule)
        assert space.contains(default)
        found = space.sample(np.random.default_rng(seed), configs)
        seconds = cost_model.predict(made, machine, space.configs(found), rule).seconds
        assert np.all(np.isfinite(seconds))
        assert np.all(seconds > 0)
        for config in (default, *map(space.config, found)):
            schedule = rule.schedule(made, target, config)
            program = apply_schedule(build_program(made), schedule)
            verify(program)
            got = run_kernel(made, program, target, arrays)
            assert_close(got, want, TOLERANCE[target.precision])


def check_network(graph: Graph, target: Target, seed: int, configs: int = CONFIGS) -> None:
    """By default schedules, then by random ones."""
    feeds = feeds_for(graph)
    want = run_graph(graph, feeds)
    logs = (RandomRecords(graph, target, seed + number) for number in range(configs))
    for log in (None, *logs):
        model = compile_graph(graph, target, log, processes=1)
        assert all("stay float32" in note for note in model.notes)
        for _ in range(2):  # the arena holds the first run's values in the second
            got = model.run(feeds)
            for name, array in want.items():
                assert_close(got[name], array, TOLERANCE[target.precision])


SEEDS = st.integers(0, 9999)


@FEW
@given(any_task(), machines(), SEEDS)
def test_tasks(made: Task, target: Target, seed: int) -> None:
    check_task(made, target, seed, configs=3)


@settings(FEW, max_examples=4)
@given(graphs() | image_networks(), machines(), SEEDS)
def test_networks(graph: Graph, target: Target, seed: int) -> None:
    check_network(graph, target, seed, configs=1)


@settings(FEW, max_examples=3)
@given(any_task(), machines("c"), SEEDS)
def test_tasks_in_c(made: Task, target: Target, seed: int) -> None:
    check_task(made, target, seed, configs=1)


@pytest.mark.slow
@MANY
@given(any_task(), machines(), SEEDS)
def test_many_tasks(made: Task, target: Target, seed: int) -> None:
    check_task(made, target, seed)


@pytest.mark.slow
@settings(FEW, max_examples=16)
@given(graphs() | image_networks(), machines(), SEEDS)
def test_many_networks(graph: Graph, target: Target, seed: int) -> None:
    check_network(graph, target, seed)


@pytest.mark.slow
@settings(FEW, max_examples=12)
@given(any_task(), machines("c"), SEEDS)
def test_many_tasks_in_c(made: Task, target: Target, seed: int) -> None:
    check_task(made, target, seed, configs=3)


@pytest.mark.slow
@settings(FEW, max_examples=6)
@given(graphs() | image_networks(), machines("c"), SEEDS)
def test_networks_in_c(graph: Graph, target: Target, seed: int) -> None:
    check_network(graph, target, seed, configs=1)
