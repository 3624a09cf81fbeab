from __future__ import annotations

import dataclasses
import math

import pytest

from autotune.measure.types import MeasureResult, Status
from autotune.report.earlier import Earlier
from tests.unit.report.samples import facts, filled, latency, tiny, untimed
from tests.unit.tuner.fakes import MemoryStore
from tests.unit.tuner.synthetic import TARGET


def test_every_task_is_there_with_its_calls() -> None:
    assert {t.key: t.calls for t in untimed().tasks} == {
        task.key: calls for task, calls in tiny().weights().items()
    }


def test_before_is_the_default_and_after_the_best() -> None:
    for task in untimed().tasks:
        assert task.default_s == 1e-3
        assert task.best_s == min(task.curve)
    assert untimed().before_s == pytest.approx(1e-3 * sum(t.calls for t in untimed().tasks))
    assert untimed().after_s == pytest.approx(
        math.fsum(t.calls * min(t.curve) for t in untimed().tasks)
    )


def test_the_latest_latency_of_this_device_counts() -> None:
    here, later, elsewhere = latency(), latency(after_s=7e-3), latency("another", 1e-3)
    assert untimed().latency is None
    assert facts(latencies=[here, later, elsewhere]).latency == later
    assert facts(latencies=[elsewhere]).latency == elsewhere


def test_curves_never_rise() -> None:
    for task in untimed().tasks:
        assert list(task.curve) == sorted(task.curve, reverse=True)
        assert len(task.curve) == task.trials


def test_failures_are_counted_by_reason() -> None:
    ((reason, count),) = untimed().failures
    assert reason == "BUILD_ERROR: build: expected <8> &"
    assert count == sum(t.failures for t in untimed().tasks) > 0


def test_a_lost_device_is_no_trial_of_a_candidate() -> None:
    store = filled(tiny())
    lost = dataclasses.replace(
        store.kept[0], result=MeasureResult(status=Status.DEVICE_LOST, error="gone", device="d")
    )
    store.kept.insert(0, lost)
    found = facts(store)
    assert found.lost == 1
    assert found.failures == untimed().failures
    assert [(t.trials, t.failures, t.curve) for t in found.tasks] == [
        (t.trials, t.failures, t.curve) for t in untimed().tasks
    ]


def test_the_cost_model_is_judged_by_rule() -> None:
    rules = {r.rule for r in untimed().rankings}
    assert "contraction" in rules
    assert all(-1 <= r.prior.rank_correlation <= 1 for r in untimed().rankings if r.prior.tasks)


def test_the_environment_is_what_made_the_records() -> None:
    assert dict(untimed().environment)["device"] == "synthetic"
    assert dict(untimed().environment)["autotune"] == "0.1.0"


def test_without_records_nothing_is_claimed() -> None:
    empty = facts(MemoryStore())
    assert (empty.before_s, empty.after_s, empty.failures, empty.rankings) == (None, None, (), ())


def test_a_task_without_a_record_leaves_no_sum() -> None:
    parts = tiny()
    store = filled(parts)
    missing = next(iter(parts.weights()))
    store.kept = [r for r in store.kept if r.task != missing]
    assert facts(store).after_s is None


def test_the_previous_run_is_what_the_log_held_when_the_model_was_measured_before() -> None:
    store = filled(tiny())
    half = len(store.kept) // 2
    store.kept[half:] = [
        dataclasses.replace(r, created="2026-03-01T00:00:00") for r in store.kept[half:]
    ]
    first = latency()
    second = dataclasses.replace(first, created="2026-04-01T00:00:00+00:00")
    assert facts(store, [first]).earlier == ""
    found = facts(store, [first, second])
    assert found.earlier == "the log as it was on 2026-01-01 00:00"
    keys = {r.task.key for r in store.kept[:half]}
    for task in found.tasks:
        old = [r for r in store.kept[:half] if r.task.key == task.key]
        times = [r.result.median_s for r in old if r.result.status is Status.OK]
        assert task.earlier_s == (min(times) if task.key in keys else None)


def test_another_log_is_compared_with_by_task() -> None:
    other = filled(tiny(), 5)
    found = facts(earlier=Earlier.of_log(other, TARGET, "old.db"))
    assert found.earlier == "the log old.db"
    for task in found.tasks:
        assert task.earlier_s is not None
        assert task.best_s is not None
        assert task.earlier_s >= task.best_s
    assert any(task.earlier_s != task.best_s for task in found.tasks)


def test_trials_after_the_whole_model_was_measured_are_counted() -> None:
    later = dataclasses.replace(latency(), created="2027-01-01T00:00:00+00:00")
    earlier = dataclasses.replace(latency(), created="2025-01-01T00:00:00+00:00")
    assert facts(latencies=[later]).later_trials == 0
    assert facts(latencies=[earlier]).later_trials == sum(t.trials for t in untimed().tasks)
