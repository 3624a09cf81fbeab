"""The board's queue and methods, over a device that does as told."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from autotune.errors import DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from autotune.target import host_target
from rpc_server.board import device as board_module
from rpc_server.board.device import BoardDevice
from rpc_server.board.job import Abilities
from rpc_server.wire import messages as wire
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes

DONE = MeasureResult(status=Status.OK, times_s=(1.0,))


@dataclass
class ToldDevice:
    """Gives a result for every permit; `batches` are the sizes it was asked for, `stopped` counts
    those that were dropped."""

    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    batches: list[int] = field(default_factory=list)
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    error: str = ""

    def profile(self) -> DeviceProfile:
        return fakes.FakeExecutor().profile(host_target())

    def measure(
        self,
        requests: tuple[MeasureRequest, ...],
        on_result: OnResult | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[MeasureResult, ...]:
        self.batches.append(len(requests))
        if self.error:
            raise DeviceError(self.error)
        for number in range(len(requests)):
            while not self.permits.acquire(timeout=0.01):
                if stop():
                    self.stopped.release()
                    return ()
            assert on_result is not None
            on_result(number, DONE)
        return (DONE,) * len(requests)

    def interrupt(self) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass
class Subject:
    """A running board and a client's calls, without sockets."""

    device: ToldDevice
    board: BoardDevice

    def submit(self, count: int, owner: int = 1) -> str:
        payload = wire.encode_submit([fakes.request(fakes.GOOD)] * count)
        return wire.decode_job(self.board.methods(owner)["submit"](payload))

    def collect(
        self, job: str, first: int = 0, wait_s: float = 5.0, owner: int = 1
    ) -> wire.JobProgress:
        payload = wire.encode_collect(wire.Collect(job=job, first=first, wait_s=wait_s))
        return wire.decode_progress(self.board.methods(owner)["collect"](payload))

    def all_of(self, job: str, count: int, owner: int = 1) -> list[MeasureResult]:
        results: list[MeasureResult] = []
        while len(results) < count:
            results += self.collect(job, len(results), owner=owner).results
        return results


@contextlib.contextmanager
def running(clock: Callable[[], float] | None = None) -> Iterator[Subject]:
    device = ToldDevice()
    extra = {"clock": clock} if clock else {}
    board = BoardDevice(device, Abilities(version="1", cores=1), **extra)
    thread = threading.Thread(target=board.run)
    thread.start()
    try:
        yield Subject(device, board)
    finally:
        board.stop()
        thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture
def subject() -> Iterator[Subject]:
    with running() as subject:
        yield subject


def test_hello_gives_profile_and_version(subject: Subject) -> None:
    hello = wire.decode_hello(subject.board.methods(1)["hello"](wire.encode("hello", {})))
    assert hello.version == "1"
    assert hello.profile == subject.device.profile()


def test_results_are_collected_as_they_come(subject: Subject) -> None:
    job = subject.submit(2)
    subject.device.permits.release()
    assert subject.collect(job).results == (DONE,)
    subject.device.permits.release()
    assert subject.collect(job, first=1).results == (DONE,)


def test_results_come_in_parts_that_a_message_holds(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = MeasureResult(
        status=Status.OK, times_s=(1.2345678901234567e-05,) * wire.MAX_REPEATS,
        conditions="\u1234" * wire.MAX_TEXT, device="\u1234" * wire.MAX_TEXT,
    )  # fmt: skip
    monkeypatch.setattr(sys.modules[__name__], "DONE", long)
    job = subject.submit(9)
    subject.device.permits.release(9)
    assert subject.all_of(job, 9) == [long] * 9
    assert len(wire.first_of((long,) * 9)) < 9


def test_collect_waits_no_longer_than_asked(subject: Subject) -> None:
    progress = subject.collect(subject.submit(1), wait_s=0.05)
    assert progress.results == ()
    assert not progress.done


def test_batches_are_measured_one_after_the_other(subject: Subject) -> None:
    first, second = subject.submit(1, owner=1), subject.submit(2, owner=2)
    subject.device.permits.release(3)
    assert len(subject.all_of(first, 1, owner=1)) == 1
    assert len(subject.all_of(second, 2, owner=2)) == 2
    assert subject.device.batches == [1, 2]


def test_a_client_that_went_away_frees_the_board(subject: Subject) -> None:
    measured = subject.submit(5, owner=1)
    subject.device.permits.release()
    subject.all_of(measured, 1)
    waiting = subject.submit(1, owner=1)
    other = subject.submit(1, owner=2)
    subject.board.forget(1)
    assert subject.device.stopped.acquire(timeout=PATIENCE_S)
    subject.device.permits.release()
    assert len(subject.all_of(other, 1, owner=2)) == 1
    with pytest.raises(DeviceError, match="no such batch"):
        subject.collect(waiting)


def test_a_client_that_stops_collecting_frees_the_board() -> None:
    now = [0.0]
    with running(lambda: now[0]) as subject:
        idle = subject.submit(5, owner=1)
        subject.device.permits.release()
        subject.all_of(idle, 1)
        now[0] = board_module.ABANDONED_S + 1
        other = subject.submit(1, owner=2)
        assert subject.device.stopped.acquire(timeout=PATIENCE_S)
        subject.device.permits.release()
        assert len(subject.all_of(other, 1, owner=2)) == 1


def test_a_cancelled_batch_is_gone(subject: Subject) -> None:
    job = subject.submit(5)
    assert wire.decode_job(subject.board.methods(1)["cancel"](wire.encode_job(job))) == job
    with pytest.raises(DeviceError, match="no such batch"):
        subject.collect(job)


def test_a_batch_belongs_to_its_connection(subject: Subject) -> None:
    job = subject.submit(1, owner=1)
    with pytest.raises(DeviceError, match="no such batch"):
        subject.collect(job, owner=2)


def test_the_queue_is_bounded(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MAX_QUEUED", 2)
    job = subject.submit(2)
    subject.device.permits.release()
    subject.all_of(job, 1)
    subject.submit(1)
    subject.submit(1)
    with pytest.raises(DeviceError, match="busy"):
        subject.submit(1)


def test_batches_that_nobody_collects_are_bounded() -> None:
    now = [0.0]
    with running(lambda: now[0]) as subject:
        subject.device.permits.release(9)
        jobs = [subject.submit(1) for _ in range(board_module.MAX_QUEUED_OWN)]
        subject.all_of(subject.submit(1, owner=2), 1, owner=2)  # those before it are done
        with pytest.raises(DeviceError, match="collect those first"):
            subject.submit(1)
        subject.all_of(jobs[0], 1)
        subject.submit(1)
        now[0] = board_module.ABANDONED_S + 1
        subject.submit(1)
        with pytest.raises(DeviceError, match="no such batch"):
            subject.collect(jobs[1])


def test_a_link_may_carry_any_number_of_batches_that_are_collected(subject: Subject) -> None:
    for _ in range(3 * board_module.MAX_QUEUED_OWN):
        subject.device.permits.release()
        assert len(subject.all_of(subject.submit(1), 1)) == 1


def test_a_device_that_fails_fails_its_batch_and_not_the_board(subject: Subject) -> None:
    subject.device.error = "no more workers"
    progress = subject.collect(subject.submit(1))
    assert progress.done
    assert "no more workers" in progress.failed
    subject.device.error = ""
    subject.device.permits.release()
    assert len(subject.all_of(subject.submit(1), 1)) == 1


def test_requests_that_are_not_understood_keep_their_place(subject: Subject) -> None:
    payload = wire.encode_submit([fakes.request(fakes.GOOD)] * 3)
    unknown = payload.replace(b'"schedule":[]', b'"schedule":[{"step":"levitate"}]', 1)
    job = wire.decode_job(subject.board.methods(1)["submit"](unknown))
    subject.device.permits.release(2)
    statuses = [r.status for r in subject.all_of(job, 3)]
    assert statuses == [Status.BUILD_ERROR, Status.OK, Status.OK]


def test_more_threads_than_cores_are_refused(subject: Subject) -> None:
    payload = wire.encode_submit([fakes.request(fakes.GOOD, threads=8)])
    with pytest.raises(DeviceError, match="8 threads"):
        wire.decode_job(subject.board.methods(1)["submit"](payload))
