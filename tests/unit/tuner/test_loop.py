from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

import cost_model
from autotune.errors import DeviceError, ScheduleError
from autotune.machine import Machine
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.schedule.base import Scheduled
from autotune.target import Target
from autotune.tuner.budget import Limits
from autotune.tuner.events import Event, Finished, Ranked, Round, Started, TrialDone
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from autotune.tuner.rerank import TURNS
from autotune.tuner.task_run import schedule_id
from autotune.types import Task
from search_spaces.params import Config
from tests.unit.tuner.fakes import FakeRunner, MemoryStore, partition_of, synthetic_rules
from tests.unit.tuner.synthetic import TARGET, SyntheticRule, matmul_task, subject, true_seconds

SMALL, LARGE = matmul_task(64, 64, 64), matmul_task(512, 256, 256)


def tune(
    runner: FakeRunner,
    store: MemoryStore,
    trials: int = 60,
    events: list[Event] | None = None,
    *,
    strategy: str = "model",
    time_s: float | None = None,
) -> TuneReport:
    listen = (lambda _event: None) if events is None else events.append
    options = TuneOptions(
        target=TARGET,
        rules=synthetic_rules,
        limits=Limits(trials=trials, time_s=time_s),
        strategy=strategy,
    )
    ticks = iter(range(10**6))
    return tune_partition(
        partition_of(SMALL, LARGE, LARGE),
        runner,
        store,
        options,
        listen,
        clock=lambda: float(next(ticks)),
    )


def trials_of(store: MemoryStore) -> Counter[tuple[str, str]]:
    return Counter((r.task.key, schedule_id(r.schedule)) for r in store.kept)


def test_defaults_are_measured_first() -> None:
    runner = FakeRunner()
    tune(runner, MemoryStore())
    rule = subject().rule
    wanted = [
        (t, rule.schedule(t, TARGET, cost_model.default(t, Machine.of(TARGET), rule)))
        for t in (SMALL, LARGE)
    ]
    assert [(r.task, r.schedule) for r in runner.asked[:2]] == wanted


def test_finds_a_config_near_the_best_of_the_space() -> None:
    store = MemoryStore()
    report = tune(FakeRunner(), store, trials=100)
    of = subject(LARGE)
    every = of.space.rows(10**6, np.random.default_rng(0))
    best = store.best(LARGE.key, TARGET)
    assert best is not None
    assert best.result.median_s <= 1.05 * true_seconds(of, every).min()
    assert report.before_s is not None
    assert report.after_s is not None
    assert report.after_s < report.before_s / 2


def test_trials_are_limited_and_never_repeated() -> None:
    store = MemoryStore()
    report = tune(FakeRunner(), store, trials=30)
    assert report.trials == report.measured == len(store.kept) == 30
    assert max(trials_of(store).values()) == 1


def test_ends_when_time_is_up() -> None:
    report = tune(FakeRunner(), MemoryStore(), trials=10**6, time_s=40.0)
    assert report.reason.startswith("time is up")


def test_same_seed_measures_the_same() -> None:
    first, second = MemoryStore(), MemoryStore()
    tune(FakeRunner(), first)
    tune(FakeRunner(), second)
    assert [r.config for r in first.kept] == [r.config for r in second.kept]


@pytest.mark.parametrize("killed_after", [1, 2, 7, 20])
def test_a_killed_run_continues_without_repeating_a_trial(killed_after: int) -> None:
    def fate(number: int, _config: Config) -> Status:
        if number > killed_after:
            raise KeyboardInterrupt
        return Status.OK

    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        tune(FakeRunner(fate=fate), store, trials=40)
    assert len(store.kept) == killed_after
    report = tune(FakeRunner(), store, trials=40)
    assert report.trials == len(store.kept) == 40
    assert report.measured == 40 - killed_after
    assert max(trials_of(store).values()) == 1


def test_runs_that_continue_from_the_same_records_measure_the_same() -> None:
    store = MemoryStore()
    tune(FakeRunner(), store, trials=17)
    first, second = MemoryStore(list(store.kept)), MemoryStore(list(store.kept))
    for continued in (first, second):
        tune(FakeRunner(), continued, trials=50)
    assert [r.config for r in first.kept] == [r.config for r in second.kept]
    assert len(first.kept) == 50


def test_a_finished_run_measures_nothing_more() -> None:
    store, runner = MemoryStore(), FakeRunner()
    tune(FakeRunner(), store, trials=20)
    report = tune(runner, store, trials=20)
    assert runner.asked == []
    assert report.measured == 0
    assert report.before_s is not None


def test_failures_are_logged_and_do_not_end_the_run() -> None:
    store = MemoryStore()
    bad = (Status.BUILD_ERROR, Status.RUN_CRASH, Status.RUN_TIMEOUT, Status.WRONG_RESULT)
    report = tune(
        FakeRunner(fate=lambda n, _c: bad[n % 4] if n % 2 and n <= 40 else Status.OK),
        store,
        trials=40,
    )
    statuses = Counter(r.result.status for r in store.kept)
    assert report.trials == 40
    assert statuses[Status.OK] == 20
    assert sum(t.failures for t in report.tasks) == 20


def test_failures_of_another_version_are_tried_again() -> None:
    store, runner = MemoryStore(), FakeRunner()
    tune(FakeRunner(fate=lambda _n, _c: Status.BUILD_ERROR), store, trials=4)
    options = TuneOptions(
        target=TARGET,
        rules=synthetic_rules,
        limits=Limits(trials=10),
        versions=(("autotune", "2"),),
    )
    failed = {(r.task.key, schedule_id(r.schedule)) for r in store.kept}
    report = tune_partition(partition_of(SMALL, LARGE), runner, store, options)
    assert report.measured == 10
    assert failed & {(r.task.key, schedule_id(r.schedule)) for r in runner.asked}


def test_a_task_that_always_fails_is_given_up() -> None:
    store = MemoryStore()
    report = tune(FakeRunner(fate=lambda _n, _c: Status.BUILD_ERROR), store, trials=1000)
    assert report.after_s is None
    assert [t.why for t in report.tasks] == ["no success in 24 trials"] * 2


def test_a_device_lost_once_is_tried_again() -> None:
    store = MemoryStore()
    report = tune(
        FakeRunner(fate=lambda n, _c: Status.DEVICE_LOST if n in (1, 2) else Status.OK),
        store,
        trials=20,
    )
    assert report.trials == len(store.kept) == 20
    assert {r.result.status for r in store.kept} == {Status.OK}


def test_a_device_lost_for_good_ends_the_run_with_everything_logged() -> None:
    store = MemoryStore()
    runner = FakeRunner(fate=lambda n, _c: Status.OK if n <= 10 else Status.DEVICE_LOST)
    with pytest.raises(DeviceError, match="run the same command again"):
        tune(runner, store, trials=40)
    assert sum(r.result.status is Status.OK for r in store.kept) == 10
    report = tune(FakeRunner(), store, trials=40)
    assert report.trials == 40
    worked = Counter(
        schedule_id(r.schedule) + r.task.key for r in store.kept if r.result.status is Status.OK
    )
    assert max(worked.values()) == 1


def test_results_not_reported_one_by_one_are_logged_too() -> None:
    class Silent(FakeRunner):
        def measure(self, requests, on_result=None):  # type: ignore[no-untyped-def]
            del on_result
            return super().measure(requests, None)

    store = MemoryStore()
    report = tune(Silent(), store, trials=15)
    assert report.measured == len(store.kept) == 15


def test_events_tell_the_whole_run() -> None:
    events: list[Event] = []
    report = tune(FakeRunner(), MemoryStore(), trials=30, events=events)
    done = [e for e in events if isinstance(e, TrialDone)]
    assert isinstance(events[0], Started)
    assert [i.weight for i in events[0].tasks] == [1, 2]
    assert isinstance(events[1], Round)
    assert isinstance(events[-1], Finished)
    assert [e.progress.trials for e in done] == list(range(1, 31))
    assert done[-1].progress.now_s == report.after_s
    assert done[1].progress.before_s == report.before_s
    assert all(e.of_peak > 0 and e.gflops > 0 for e in done)


def test_every_round_says_how_well_its_tasks_were_ranked() -> None:
    events: list[Event] = []
    tune(FakeRunner(), MemoryStore(), trials=40, events=events)
    ranked = [e for e in events if isinstance(e, Ranked)]
    judged = [r for e in ranked for r in e.tasks]
    assert len(ranked) >= 3
    assert all(r.samples >= 2 and r.regret >= 0 and 0 <= r.top_recall <= 1 for r in judged)
    assert max(r.samples for r in judged) > 12


def test_configs_of_other_tasks_are_tried_early() -> None:
    store = MemoryStore()
    tune(FakeRunner(), store, trials=60)
    known = store.best(LARGE.key, TARGET)
    assert known is not None
    other, runner = matmul_task(512, 256, 128), FakeRunner()
    tune_partition(
        partition_of(other),
        runner,
        store,
        TuneOptions(target=TARGET, rules=synthetic_rules, limits=Limits(trials=8)),
    )
    near = {r.config for r in store.nearest(other, TARGET, 6)}
    tried = [r.config for r in store.records(other.key, TARGET)]
    assert near & set(tried[1:8])


def test_a_rule_without_a_schedule_for_a_config_costs_no_trial() -> None:
    class Picky(SyntheticRule):
        def write(self, task, target, config):  # type: ignore[no-untyped-def]
            if config["order"] == "nm":
                raise ScheduleError("not this way")
            return super().write(task, target, config)

    store = MemoryStore()
    options = TuneOptions(
        target=TARGET, rules=lambda _task, _target: Picky(), limits=Limits(trials=20)
    )
    tune_partition(partition_of(LARGE), FakeRunner(), store, options)
    assert {r.config["order"] for r in store.kept} == {"mn"}
    assert len(store.kept) == 20


def test_a_config_s_schedule_is_written_once() -> None:
    written: list[Config] = []

    class Counting(SyntheticRule):
        def write(self, task: Task, target: Target, config: Config) -> Scheduled:
            written.append(config)
            return super().write(task, target, config)

    store = MemoryStore()
    options = TuneOptions(
        target=TARGET, rules=lambda _task, _target: Counting(), limits=Limits(trials=20)
    )
    tune_partition(partition_of(LARGE), FakeRunner(), store, options)
    assert set(written) >= {r.config for r in store.kept}
    assert len(written) == len(set(written))


def test_the_fastest_are_measured_again_in_turns_and_the_luckiest_loses() -> None:
    class Noisy(FakeRunner):
        def _result(self, request: MeasureRequest) -> MeasureResult:
            result = super()._result(request)
            if len(self.asked) == 20:
                lucky_s = 0.9 * min(r.result.median_s for r in store.kept)
                return dataclasses.replace(result, times_s=(lucky_s,) * len(result.times_s))
            return result

    store, runner = MemoryStore(), Noisy()
    options = TuneOptions(target=TARGET, rules=synthetic_rules, limits=Limits(trials=20))
    report = tune_partition(partition_of(LARGE), runner, store, options)
    again = [r.schedule for r in runner.asked[20:]]
    half = len(again) // 2
    assert report.measured == report.trials == 20
    assert runner.asked[19].schedule in again
    assert again[:half] == again[half:]
    best = store.best(LARGE.key, TARGET)
    assert best is not None
    assert best.result.median_s == report.after_s


def test_a_record_that_fails_when_measured_again_is_not_the_best() -> None:
    store = MemoryStore()
    fate = lambda n, _c: Status.OK if n <= 20 else Status.RUN_CRASH  # noqa: E731
    options = TuneOptions(target=TARGET, rules=synthetic_rules, limits=Limits(trials=20))
    tune_partition(partition_of(LARGE), FakeRunner(fate=fate), store, options)
    crashed = [r.schedule for r in store.kept if r.result.status is Status.RUN_CRASH]
    best = store.best(LARGE.key, TARGET)
    assert best is not None
    assert best.schedule not in crashed


def test_the_default_is_measured_again_beside_the_fastest() -> None:
    runner = FakeRunner()
    options = TuneOptions(target=TARGET, rules=synthetic_rules, limits=Limits(trials=20))
    tune_partition(partition_of(LARGE), runner, MemoryStore(), options)
    rule = subject().rule
    default = rule.schedule(LARGE, TARGET, cost_model.default(LARGE, Machine.of(TARGET), rule))
    assert [r.schedule for r in runner.asked[20:]].count(default) == TURNS
