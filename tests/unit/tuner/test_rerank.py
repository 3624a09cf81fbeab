"""Which records are measured again, and what becomes of them."""

from __future__ import annotations

from autotune.measure.types import MeasureResult, Status
from autotune.tuner.rerank import combined, interleaved, top_candidates
from tests.unit.db.samples import record


def test_only_close_ones_are_measured_again() -> None:
    fastest, close, slow = (record(times=(t,)) for t in (1e-3, 1.02e-3, 2e-3))
    assert top_candidates([slow, close, fastest]) == (fastest, close)


def test_a_single_winner_is_doubted_too() -> None:
    lucky, second = record(times=(1e-3,)), record(times=(2e-3,))
    assert top_candidates([second, lucky]) == (lucky, second)


def test_without_a_choice_nothing_is_measured_again() -> None:
    assert top_candidates([record(), record(status=Status.RUN_CRASH)]) == ()


def test_turns_are_interleaved() -> None:
    a, b = record(times=(1e-3,)), record(times=(2e-3,))
    assert interleaved([a, b]) == (a, b, a, b)


def test_times_of_all_turns_count() -> None:
    turns = [MeasureResult(status=Status.OK, times_s=t) for t in ((1.0, 2.0), (3.0,))]
    whole = combined(record(), turns)
    assert whole is not None
    assert whole.result.times_s == (1.0, 2.0, 3.0)


def test_one_failure_is_a_failure() -> None:
    turns = [
        MeasureResult(status=Status.OK, times_s=(1.0,)),
        MeasureResult(status=Status.WRONG_RESULT, error="differs"),
    ]
    whole = combined(record(), turns)
    assert whole is not None
    assert whole.result.status is Status.WRONG_RESULT


def test_a_lost_device_says_nothing() -> None:
    turns = [MeasureResult(status=Status.DEVICE_LOST, error="gone")]
    assert combined(record(), turns) is None
