"""The report of a run of the tiny model: its whole runs, before and after."""

from __future__ import annotations

import shutil
from pathlib import Path

import autotune
import cost_model
from autotune.cli import execute
from autotune.compiler.layout_costs import arranged
from autotune.db.types import Record
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.placement.layout_problem import problem_of
from autotune.placement.partition import partition
from autotune.target import host_target
from search_spaces.rules import rule_for
from tests.tiny import MODEL, Tuned


def test_the_whole_model_was_run_before_and_after_and_the_report_says_so(
    tuned: Tuned, tmp_path: Path
) -> None:
    log, report = tuned
    assert report.latency is not None, report.no_latency
    assert 0 < report.latency.after_s < 1
    page = tmp_path / "report.html"
    assert execute(["report", MODEL, "--log", str(log), "-o", str(page)]) == 0
    assert "end to end after" in page.read_text(encoding="utf-8")


def test_the_report_finds_the_runs_of_a_model_in_other_layouts(
    tuned: Tuned, tmp_path: Path
) -> None:
    log, page = tmp_path / "other.db", tmp_path / "report.html"
    shutil.copy(tuned[0], log)
    graph, target = optimize(load_model(MODEL)), host_target()
    problem = problem_of(graph, target)
    layouts = problem.layouts(dict.fromkeys(problem.options, 1))
    with autotune.TuningLog(log) as store:
        for task in partition(graph, layouts=layouts).weights():
            rule = rule_for(task, target)
            config = cost_model.default(task, Machine.of(target), rule)
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
