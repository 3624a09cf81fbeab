"""`autotune.tune` on a real model and this machine, in a few trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.compiler.layout_costs import arranged, choose_layouts
from autotune.compiler.prepare import prepare
from autotune.db.selection import Selection
from autotune.db.store import TuningLog
from autotune.errors import ConfigError, DeviceError, LogError, TargetError
from autotune.placement.layout_choice import explain
from autotune.placement.layout_problem import problem_of
from autotune.target import host_target
from autotune.tuner.api import tune
from autotune.tuner.report import TuneReport
from tests.unit.layouts.test_choose import depthwise_net


def tiny(log: Path, measured: Path, **options: int | str | bool) -> TuneReport:
    return tune("zoo:tiny", log=log, cache_dir=measured, **options)  # type: ignore[arg-type]


def test_a_run_fills_the_log_and_the_next_one_continues(tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    first = tiny(log, measured, trials=11)
    second = tiny(log, measured, trials=14)
    assert (first.measured, second.measured, second.trials) == (11, 3, 14)
    assert all(t.best_s is not None for t in second.tasks)
    with TuningLog(log, read_only=True) as store:
        found = store.query(Selection(task_keys=[t.task.key for t in second.tasks]))
    assert len(found) == len(second.tasks)


def test_a_dry_run_measures_and_writes_nothing(tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    report = tiny(log, measured, dry_run=True)
    assert report.forecast is not None
    assert sum(report.forecast.trials) >= len(report.tasks)
    assert report.measured == 0
    assert report.tasks
    assert not log.exists()


@pytest.mark.slow
def test_a_run_goes_about_as_a_dry_run_says(tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    guess = tiny(log, measured, dry_run=True, until_gain=0.1).forecast
    report = tiny(log, measured, until_gain=0.1)
    again = tiny(log, measured, dry_run=True, until_gain=0.1).forecast
    assert guess is not None
    assert again is not None
    assert sum(guess.trials) / 3 < report.measured < sum(guess.trials) * 3
    assert sum(again.trials) < sum(guess.trials) / 2


def test_bad_options_are_refused_before_the_run(tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    with pytest.raises(ConfigError, match="at least 1"):
        tiny(log, measured, trials=0)
    with pytest.raises(TargetError):
        tiny(log, measured, target="no-such-target")
    with pytest.raises(DeviceError):
        tiny(log, measured, device="elsewhere")
    with pytest.raises(ConfigError, match="unknown strategy"):
        tiny(log, measured, strategy="no-such-strategy")


@pytest.mark.parametrize("time_s", [0, -1.0, float("nan")])
def test_no_time_is_refused(time_s: float, tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    with pytest.raises(ConfigError, match="time_s must be more than 0 seconds"):
        tiny(log, measured, time_s=time_s)
    assert not log.exists()


def test_a_run_and_compiling_choose_the_same_layouts(tmp_path: Path, measured: Path) -> None:
    log, graph = tmp_path / "tuning.db", depthwise_net()
    report = tune(graph, log=log, cache_dir=measured, until_gain=0.9)
    target = host_target()
    with TuningLog(log, read_only=True) as store:
        problem = problem_of(prepare(graph, "float32").graph, target)
        assert all(store.records(task.key, target) for task in problem.tasks())
        assert report.layouts == explain(choose_layouts(problem, target, store))
        parts = arranged(graph, target, store)
    assert parts.weights().keys() == {task.task for task in report.tasks}


def test_a_log_that_is_no_database_is_refused(tmp_path: Path, measured: Path) -> None:
    log = tmp_path / "tuning.db"
    log.write_text("these are not the tables you are looking for" * 100)
    with pytest.raises(LogError):
        tiny(log, measured, trials=5)
