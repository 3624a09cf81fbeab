"""The whole pipeline in seconds: a good first page of the project.

model -> graph -> tasks -> trials -> tuning log -> compiled model -> outputs -> saved file
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from autotune.db.types import Record
from autotune.frontend import load_model
from autotune.graph.interp import run_graph
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.layouts.choose import arranged
from autotune.layouts.problem import problem_of
from autotune.measure.types import MeasureResult, Status
from autotune.runtime import random_feeds
from autotune.target import host_target
from autotune.tuner.report import TuneReport
from autotune.tuner.whole import FEW_TRIALS
from search_spaces.rules import rule_for

MODEL = "zoo:tiny"
TRIALS = FEW_TRIALS  # the fewest after which the whole model is run


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuneReport]:
    """A tuning log with a few trials of every task of the tiny model."""
    log = tmp_path_factory.mktemp("tiny") / "tuning.db"
    report = autotune.tune(MODEL, log=log, trials=TRIALS, seed=0)
    return log, report


def test_a_model_becomes_tasks_with_spaces() -> None:
    graph = load_model(MODEL)
    calls = partition(optimize(graph)).calls
    assert len(calls) < len(graph.nodes)  # fused
    for task in {call.task for call in calls}:
        config = rule_for(task, host_target()).default(task, host_target())
        assert rule_for(task, host_target()).space(task, host_target()).contains(config)


def test_tuning_logs_every_trial(tuned: tuple[Path, TuneReport]) -> None:
    log, report = tuned
    assert report.trials == TRIALS
    with autotune.TuningLog(log, read_only=True) as store:
        logged = store.query(top=TRIALS)
        of_tasks = [store.records(task.task.key, host_target()) for task in report.tasks]
    assert len(logged) == TRIALS
    # The others are of layouts that were not chosen.
    assert sum(map(len, of_tasks)) == sum(task.trials for task in report.tasks) <= TRIALS


def test_the_whole_model_was_run_before_and_after_and_the_report_says_so(
    tuned: tuple[Path, TuneReport], tmp_path: Path
) -> None:
    log, report = tuned
    assert report.latency is not None, report.no_latency
    assert 0 < report.latency.after_s < 1
    page = tmp_path / "report.html"
    assert execute(["report", MODEL, "--log", str(log), "-o", str(page)]) == 0
    assert "end to end after" in page.read_text(encoding="utf-8")


def test_the_report_finds_the_runs_of_a_model_in_other_layouts(
    tuned: tuple[Path, TuneReport], tmp_path: Path
) -> None:
    log, page = tmp_path / "other.db", tmp_path / "report.html"
    shutil.copy(tuned[0], log)
    graph, target = optimize(load_model(MODEL)), host_target()
    problem = problem_of(graph, target)
    layouts = problem.layouts(dict.fromkeys(problem.options, 1))
    with autotune.TuningLog(log) as store:
        for task in partition(graph, layouts=layouts).weights():
            rule = rule_for(task, target)
            config = rule.default(task, target)
            fast = MeasureResult(status=Status.OK, times_s=(1e-9,))
            record = Record(
                task=task,
                target=target,
                rule=rule.name,
                config=config,
                schedule=rule.schedule(task, target, config),
                result=fast,
            )
            store.append([record])
        assert arranged(graph, target, store).layouts == layouts
    assert execute(["report", MODEL, "--log", str(log), "-o", str(page)]) == 0
    assert "end to end after" in page.read_text(encoding="utf-8")


def test_the_best_record_of_each_task_is_compiled(tuned: tuple[Path, TuneReport]) -> None:
    log, _ = tuned
    model = autotune.compile(MODEL, log=log)
    assert {kernel.source for kernel in model.image.kernels} == {"record"}
    with autotune.TuningLog(log, read_only=True) as store:
        # in the layouts that are the fastest by the log, as the run left it
        fastest = arranged(optimize(load_model(MODEL)), host_target(), store)
    assert {kernel.task_key for kernel in model.image.kernels} == {
        task.key for task in fastest.weights()
    }


@pytest.mark.parametrize("use_log", [False, True])
def test_a_compiled_model_computes_what_the_graph_says(
    tuned: tuple[Path, TuneReport], use_log: bool
) -> None:
    model = autotune.compile(MODEL, log=tuned[0] if use_log else None)
    feeds = random_feeds(model.inputs, seed=1)
    want = run_graph(load_model(MODEL), feeds)
    for name, array in model.run(feeds).items():
        np.testing.assert_allclose(array, want[name], rtol=1e-4, atol=1e-5)


def test_a_saved_model_loads_and_agrees(tuned: tuple[Path, TuneReport], tmp_path: Path) -> None:
    model = autotune.compile(MODEL, log=tuned[0])
    model.save(tmp_path / "tiny.atm")
    feeds = random_feeds(model.inputs, seed=2)
    again = autotune.load(tmp_path / "tiny.atm").run(feeds)
    for name, array in model.run(feeds).items():
        np.testing.assert_array_equal(again[name], array)
