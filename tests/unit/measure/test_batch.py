"""Batches: who gets which core, cancelling, closing."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.errors import DeviceError
from autotune.measure.batch import BatchExecutor, plan_cores
from autotune.measure.types import Built, MeasureResult, Status
from tests.unit.measure import fakes


@pytest.mark.parametrize(
    ("cores", "threads", "runner", "builders", "exclusive"),
    [
        ((0, 1), 1, (1,), (0,), False),
        ((0, 1), 2, (0, 1), (0, 1), True),
        ((3,), 1, (3,), (3,), True),
        ((0, 1, 2, 3), 2, (2, 3), (0, 1), False),
        ((0, 1), 4, (0, 1), (0, 1), True),
    ],
)
def test_the_runner_is_alone_on_its_cores_where_there_are_others(
    cores: tuple[int, ...],
    threads: int,
    runner: tuple[int, ...],
    builders: tuple[int, ...],
    exclusive: bool,
) -> None:
    plan = plan_cores(cores, threads)
    assert (plan.runner, plan.builders, plan.exclusive) == (runner, builders, exclusive)


def test_a_stopped_batch_leaves_the_rest_lost_and_unreported() -> None:
    batch = BatchExecutor(device="here", executor=fakes.FAKE)
    seen: list[int] = []

    def report(number: int, _: MeasureResult) -> None:
        seen.append(number)

    requests = [fakes.request(fakes.GOOD)] * 4
    results = batch.measure(requests, report, lambda: len(seen) == 2)
    batch.close()
    assert [r.status for r in results] == [Status.OK] * 2 + [Status.DEVICE_LOST] * 2
    assert seen == [0, 1]


def test_an_error_of_the_caller_passes_and_the_next_batch_works() -> None:
    batch = BatchExecutor(device="here", executor=fakes.FAKE)

    def fail(_: int, __: MeasureResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.measure([fakes.request(fakes.GOOD)] * 3, fail)
    (result,) = batch.measure([fakes.request(fakes.GOOD)])
    batch.close()
    assert result.status is Status.OK


def test_a_worker_that_is_always_killed_is_a_crash() -> None:
    batch = BatchExecutor(device="here", executor=fakes.ALWAYS_KILLED)
    (result,) = batch.measure([fakes.request(fakes.GOOD)])
    batch.close()
    assert result.status is Status.RUN_CRASH
    assert "SIGKILL" in result.error


def test_a_device_without_working_workers_is_an_error() -> None:
    batch = BatchExecutor(device="here", executor="no.such:Executor")
    with pytest.raises(DeviceError, match="does not start"):
        batch.measure([fakes.request(fakes.GOOD)])
    batch.close()


def test_a_closed_executor_refuses() -> None:
    batch = BatchExecutor(device="here", executor=fakes.FAKE)
    batch.close()
    with pytest.raises(DeviceError, match="closed"):
        batch.measure([fakes.request(fakes.GOOD)])


def test_what_is_measured_again_is_not_built_again() -> None:
    """However long it is timed. The executor's times are numbers of builds."""
    batch = BatchExecutor(device="here", executor=fakes.COUNTING)
    (first,) = batch.measure([fakes.request(fakes.GOOD)])
    longer = fakes.request(fakes.GOOD, timing=dataclasses.replace(fakes.PATIENT, max_repeats=9))
    again, other = batch.measure([longer, fakes.request(fakes.SLOW)])
    batch.close()
    assert [r.times_s for r in (first, again, other)] == [(1.0,), (1.0,), (2.0,)]


def test_what_was_built_elsewhere_is_not_kept_here() -> None:
    """A thousand objects of a client would fill a small board's memory."""
    batch = BatchExecutor(device="here", executor=fakes.FAKE)
    built = Built(symbol="kernel", code=b"\0code", workspace_bytes=0)
    sent = dataclasses.replace(fakes.request(fakes.GOOD), built=built)
    (result,) = batch.measure([sent])
    batch.close()
    assert result.status is Status.OK
    assert batch.built(sent) is None
