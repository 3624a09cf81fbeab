"""The first page of the project: the whole pipeline on a tiny model, stage by stage, in seconds.

    model -> graph -> tasks
    task -> space -> config -> schedule -> program -> object code -> time
    trials -> tuning log -> compiled model -> outputs -> saved file

Each test is an arrow or two, and what must hold of them. docs/ARCHITECTURE.md is the map.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autotune
import cost_model
from autotune.codegen import backend_for
from autotune.compiler.layout_costs import arranged
from autotune.frontend import load_model
from autotune.graph.interp import run_graph
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, Status
from autotune.placement.partition import partition
from autotune.runtime import random_feeds
from autotune.schedule import apply_schedule
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from cost_model.subject import Subject
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.tiny import MODEL, TRIALS, Tuned

TARGET = host_target()


@pytest.fixture(scope="module")
def task() -> Task:
    """One kernel of the model: its matrix product, with the bias."""
    calls = partition(optimize(load_model(MODEL))).calls
    return next(call.task for call in calls if call.task.op == "matmul")


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(TARGET) as found:
        yield found


def test_a_model_becomes_tasks_with_spaces() -> None:
    graph = load_model(MODEL)
    calls = partition(optimize(graph)).calls
    assert len(calls) < len(graph.nodes)  # fused
    for task in {call.task for call in calls}:
        config = cost_model.default(task, Machine.of(TARGET))
        assert rule_for(task, TARGET).space(task, TARGET).contains(config)


def test_a_config_becomes_a_schedule_and_that_an_equal_program(task: Task) -> None:
    rule, plain = rule_for(task, TARGET), build_program(task)
    schedule = rule.schedule(task, TARGET, cost_model.default(task, Machine.of(TARGET)))
    scheduled = apply_schedule(plain, schedule)
    assert scheduled != plain
    arrays = random_inputs(task, seed=0)
    np.testing.assert_allclose(run(scheduled, arrays), run(plain, arrays), rtol=1e-4, atol=1e-5)


def test_a_program_becomes_text_and_object_code(task: Task) -> None:
    backend, program = backend_for(TARGET), build_program(task)
    assert "define" in backend.source(program, TARGET, "kernel")  # LLVM IR
    assert backend.build(program, TARGET, "kernel").code.startswith(b"\x7fELF")


def test_candidates_are_ranked_without_being_built(task: Task, runner: LocalRunner) -> None:
    subject = Subject.of(task, TARGET, runner.profile(), rule_for(task, TARGET))
    rows = subject.space.sample(np.random.default_rng(0), 100)
    prior_s = subject.describe(rows).prior_s
    assert len(prior_s) == len(rows)
    assert (prior_s > 0).all()


def test_a_candidate_is_built_checked_and_timed_elsewhere(task: Task, runner: LocalRunner) -> None:
    rule = rule_for(task, TARGET)
    schedule = rule.schedule(task, TARGET, cost_model.default(task, Machine.of(TARGET)))
    request = MeasureRequest(task=task, schedule=schedule, target=TARGET)
    (result,) = runner.measure((request,))
    assert result.status is Status.OK, result.error
    assert 0 < result.median_s < 1


def test_tuning_logs_every_trial(tuned: Tuned) -> None:
    log, report = tuned
    assert report.trials == TRIALS
    with autotune.TuningLog(log, read_only=True) as store:
        logged = store.query(top=TRIALS)
        of_tasks = [store.records(task.task.key, TARGET) for task in report.tasks]
    assert len(logged) == TRIALS
    # The others are of layouts that were not chosen.
    assert sum(map(len, of_tasks)) == sum(task.trials for task in report.tasks) <= TRIALS


def test_the_best_record_of_each_task_is_compiled(tuned: Tuned) -> None:
    log, _ = tuned
    model = autotune.compile(MODEL, log=log)
    assert {kernel.source for kernel in model.image.kernels} == {"record"}
    with autotune.TuningLog(log, read_only=True) as store:
        # in the layouts that are the fastest by the log, as the run left it
        fastest = arranged(optimize(load_model(MODEL)), TARGET, store)
    assert {kernel.task_key for kernel in model.image.kernels} == {
        task.key for task in fastest.weights()
    }


@pytest.mark.parametrize("use_log", [False, True])
def test_a_compiled_model_computes_what_the_graph_says(tuned: Tuned, use_log: bool) -> None:
    model = autotune.compile(MODEL, log=tuned[0] if use_log else None)
    feeds = random_feeds(model.inputs, seed=1)
    want = run_graph(load_model(MODEL), feeds)
    for name, array in model.run(feeds).items():
        np.testing.assert_allclose(array, want[name], rtol=1e-4, atol=1e-5)


def test_a_saved_model_loads_and_agrees(tuned: Tuned, tmp_path: Path) -> None:
    model = autotune.compile(MODEL, log=tuned[0])
    model.save(tmp_path / "tiny.model")
    feeds = random_feeds(model.inputs, seed=2)
    again = autotune.load(tmp_path / "tiny.model").run(feeds)
    for name, array in model.run(feeds).items():
        np.testing.assert_array_equal(again[name], array)
