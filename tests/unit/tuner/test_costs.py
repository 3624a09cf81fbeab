"""What a trial takes, by what the log has, and what gains of tasks are worth to a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import cost_model
from autotune.db.latencies import keep
from autotune.db.store import TuningLog
from autotune.db.types import Latency, Record
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureResult, Status
from autotune.target import host_target
from autotune.tuner.budget import Limits
from autotune.tuner.costs import surviving, trial_costs_s
from autotune.tuner.learner import Learner
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.strategies import STRATEGIES
from autotune.tuner.task_run import TaskRun
from tests.unit.tuner.fakes import FakeRunner, MemoryStore, partition_of, synthetic_rules
from tests.unit.tuner.synthetic import PROFILE, TARGET, matmul_task, subject

SMALL, LARGE = matmul_task(64, 64, 64), matmul_task(512, 256, 256)
MEASURED = Latency(
    model_key="k", model="m", target_key=TARGET.key, device="d",
    before=(1.0, 1.2), after=(0.9, 1.3), kernels_before_s=1.0, kernels_after_s=0.9,
)  # fmt: skip


def record(build_s: float, run_s: float, device: str = PROFILE.device) -> Record:
    of = subject(SMALL)
    config = cost_model.default(SMALL, Machine.of(TARGET), of.rule)
    result = MeasureResult(
        status=Status.OK, times_s=(1e-5,), build_s=build_s, run_s=run_s, device=device
    )
    return Record(
        task=SMALL,
        target=TARGET,
        rule=of.rule.name,
        config=config,
        schedule=of.rule.schedule(SMALL, TARGET, config),
        result=result,
    )


def costs(store: MemoryStore, runner: object = None) -> tuple[float, float]:
    """Of trials of SMALL, whose records the store may have, and of LARGE."""
    runs = [TaskRun(subject(task), 1) for task in (SMALL, LARGE)]
    for number, run in enumerate(runs):
        learner = Learner(None, 0, None)
        run.start(STRATEGIES.get("random"), learner, store, group=number, seed=0)
    small, large = trial_costs_s(runs, store, runner or FakeRunner())  # type: ignore[arg-type]
    return small, large


def test_a_trial_of_a_slow_kernel_takes_longer() -> None:
    small, large = costs(MemoryStore())
    assert 0.03 < small <= large < 0.5


def test_what_records_took_counts_for_their_task_and_for_similar_ones() -> None:
    fast, slow = (costs(MemoryStore([record(1.0, run_s)])) for run_s in (2.0, 8.0))
    assert fast[0] == pytest.approx(2.0, rel=0.1)
    assert slow[0] == pytest.approx(8.0, rel=0.1)
    assert slow[1] > 3 * fast[1] > 6.0


def test_building_counts_where_it_takes_longer_than_timing() -> None:
    assert costs(MemoryStore([record(9.0, 2.0)]))[0] == pytest.approx(9.0, rel=0.1)


def test_other_devices_say_nothing() -> None:
    assert costs(MemoryStore([record(9.0, 9.0, "elsewhere")]))[1] == costs(MemoryStore())[1]


def test_where_every_core_times_building_comes_before() -> None:
    target, store = host_target(), MemoryStore([record(4.0, 2.0)])
    with LocalRunner(target.with_threads(2), cores=(0, 1)) as runner:
        assert costs(store, runner)[0] == pytest.approx(4.0 / 2 + 2.0, rel=0.1)
    with LocalRunner(target, cores=(0, 1)) as runner:
        assert costs(store, runner)[0] == pytest.approx(4.0, rel=0.1)


def test_models_gain_less_than_sums_until_the_log_says_more(tmp_path: Path) -> None:
    assert 0 < surviving(MemoryStore(), TARGET) < 1
    with TuningLog(tmp_path / "log.db") as log:
        before = surviving(log, TARGET)
        keep(log, MEASURED)
        once = surviving(log, TARGET)
        for _ in range(20):
            keep(log, MEASURED)
        keep(log, dataclasses.replace(MEASURED, after=(9.0,), origin="another log"))
        keep(log, dataclasses.replace(MEASURED, after=(9.0,), target_key="other"))
        assert before < once < surviving(log, TARGET) < 1


class Paced(FakeRunner):
    """Trials take time: of the clock that it is asked for, and in their results."""

    now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def _result(self, request: object) -> MeasureResult:
        result = super()._result(request)  # type: ignore[arg-type]
        self.now_s += 0.3
        return dataclasses.replace(result, build_s=0.1, run_s=0.25, device=PROFILE.device)


def test_a_run_that_goes_on_takes_about_as_long_as_expected() -> None:
    """Its trials are those of the budget's play, its pace that of its records."""
    runner, store = Paced(), MemoryStore()
    options = TuneOptions(target=TARGET, limits=Limits(trials=20), rules=synthetic_rules)

    def tune(more: TuneOptions) -> tuple[float, float | None]:
        begun_s = runner.now_s
        report = tune_partition(
            partition_of(SMALL, LARGE), runner, store, more, clock=runner.clock
        )
        guess = report.forecast
        return runner.now_s - begun_s, None if guess is None else guess.time_s

    tune(options)
    more = dataclasses.replace(options, limits=Limits(trials=80))
    _, expected_s = tune(dataclasses.replace(more, dry_run=True))
    took_s, _ = tune(more)
    assert expected_s is not None
    assert expected_s == pytest.approx(took_s, rel=0.3)
