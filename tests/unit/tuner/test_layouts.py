"""Before tuning, tasks in all their layouts are measured, where the run can afford it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.compiler.layout_costs import choose_layouts
from autotune.db.store import TuningLog
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.placement.layout_choice import apply
from autotune.placement.layout_problem import LayoutProblem, problem_of
from autotune.placement.layouts import ValueLayout
from autotune.target import load_target
from autotune.tuner.budget import Limits
from autotune.tuner.layouts import after_layouts, measure_layouts
from autotune.tuner.options import TuneOptions
from tests.unit.layouts.test_choose import apart, depthwise_net

TARGET = load_target("x86-64-v4")


class Stopwatch:
    """A runner in which tasks with gaps take so long, and all others a tenth of a millisecond."""

    def __init__(self, gap_s: float, status: Status = Status.OK) -> None:
        self.asked: list[MeasureRequest] = []
        self._gap_s, self._status = gap_s, status

    def profile(self) -> DeviceProfile:
        return Machine.of(TARGET).profile

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        self.asked += requests
        times = [self._gap_s if apart(request.task) else 1e-4 for request in requests]
        results = tuple(MeasureResult(status=self._status, times_s=(t,)) for t in times)
        for place, result in enumerate(results if on_result else ()):
            on_result(place, result)
        return results


def options(**limits: float | None) -> TuneOptions:
    return TuneOptions(target=TARGET, limits=Limits(**limits))


@pytest.fixture(scope="module")
def problem() -> LayoutProblem:
    return problem_of(depthwise_net(), TARGET)


@pytest.mark.parametrize(("gap_s", "layouts"), [(5e-5, {ValueLayout(padding=32)}), (2e-4, set())])
def test_measured_times_decide(
    tmp_path: Path, problem: LayoutProblem, gap_s: float, layouts: set[ValueLayout]
) -> None:
    runner = Stopwatch(gap_s)
    with TuningLog(tmp_path / "tuning.db") as log:
        measure_layouts(problem, runner, log, options())
        choice = choose_layouts(problem, TARGET, log)
        assert set(choice.layouts.values()) == layouts
        assert {r.task for r in runner.asked} == set(problem.tasks())
        assert measure_layouts(problem, runner, log, options()) == 0


def test_layouts_that_were_not_chosen_are_trials_of_the_run(
    tmp_path: Path, problem: LayoutProblem
) -> None:
    with TuningLog(tmp_path / "tuning.db") as log:
        asked = options(trials=100, time_s=60.0)
        measure_layouts(problem, Stopwatch(5e-5), log, asked)
        choice = choose_layouts(problem, TARGET, log)
        chosen = apply(problem, depthwise_net(), TARGET, choice.layouts)
        left = after_layouts(problem, chosen, log, asked, 2.5)
        rejected = set(problem.tasks()) - set(chosen.weights())
        assert len(rejected) > 0
        assert left.limits == dataclasses.replace(asked.limits.without(2.5), used=len(rejected))
        assert left.limits.time_s == 57.5


@pytest.mark.parametrize("limits", [{"trials": 8}, {"time_s": 2.0}])
def test_a_short_run_measures_no_layouts(
    tmp_path: Path, problem: LayoutProblem, limits: Mapping[str, float]
) -> None:
    with TuningLog(tmp_path / "tuning.db") as log:
        assert measure_layouts(problem, Stopwatch(1.0), log, options(**limits)) == 0


def test_a_lost_device_leaves_no_records(tmp_path: Path, problem: LayoutProblem) -> None:
    with TuningLog(tmp_path / "tuning.db") as log:
        measure_layouts(problem, Stopwatch(1.0, Status.DEVICE_LOST), log, options())
        assert not any(log.records(task.key, TARGET) for task in problem.tasks())
