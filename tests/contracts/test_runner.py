"""What every Runner keeps: one result per request, in order, whatever the candidates do.

Runs over real processes and, for the board, real sockets on loopback. To add a runner: a fixture.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Runner, Status
from autotune.target import host_target
from rpc_server.client.board_runner import RpcRunner
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farms import running_farm


@dataclass(frozen=True)
class Subject:
    """A runner under test and how to find the process that runs candidates."""

    runner: Runner
    worker_pids: Callable[[], list[int]]


@pytest.fixture(scope="module")
def board() -> Iterator[BoardProcess]:
    with BoardProcess(executor=fakes.FAKE) as board:
        yield board


@pytest.fixture(scope="module", params=["local", "rpc", "farm"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "local":
        with LocalRunner(host_target(), executor=fakes.FAKE) as runner:
            yield Subject(runner, lambda: [runner.worker_pid or 0])
        return
    if request.param == "farm":
        folder = request.getfixturevalue("tmp_path_factory").mktemp("farm")
        with running_farm(folder, boards=1) as farm, farm.runner() as leased:
            yield Subject(leased, farm.boards[0].children)
        return
    board: BoardProcess = request.getfixturevalue("board")
    with RpcRunner(board.url) as remote:
        yield Subject(remote, board.children)


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


CASES = [
    (fakes.GOOD, Status.OK, ""),
    (fakes.NOISY, Status.OK, ""),
    (fakes.BUILD_ERROR, Status.BUILD_ERROR, "step 3 is not legal"),
    (fakes.BUILD_CRASH, Status.BUILD_ERROR, "SIGABRT"),
    (fakes.BUILD_HANG, Status.BUILD_TIMEOUT, "over 1 s"),
    (fakes.WRONG, Status.WRONG_RESULT, "expected 1, got 2"),
    (fakes.SEGFAULT, Status.RUN_CRASH, "SIGSEGV"),
    (fakes.HANG, Status.RUN_TIMEOUT, "over 1 s"),
    (fakes.EXIT, Status.RUN_CRASH, "status 7: giving up"),
    (fakes.RAISE, Status.RUN_CRASH, "ValueError: two lines"),
]


@pytest.mark.parametrize(("behaviour", "status", "error"), CASES)
def test_a_candidate_ends_with_its_status(
    subject: Subject, behaviour: int, status: Status, error: str
) -> None:
    (result,) = subject.runner.measure((fakes.request(behaviour),))
    assert result.status is status
    assert error in result.error
    assert "\n" not in result.error
    assert (result.times_s != ()) == (status is Status.OK)


def test_results_come_in_order_whatever_fails_between(subject: Subject) -> None:
    behaviours = [fakes.GOOD, fakes.SEGFAULT, fakes.GOOD, fakes.WRONG, fakes.BUILD_ERROR]
    results = subject.runner.measure(tuple(fakes.request(b) for b in behaviours))
    expected = {b: s for b, s, _ in CASES}
    assert [r.status for r in results] == [expected[b] for b in behaviours]


def test_every_result_is_reported_once_as_it_comes(subject: Subject) -> None:
    seen: list[tuple[int, Status]] = []
    requests = tuple(fakes.request(b) for b in (fakes.GOOD, fakes.WRONG, fakes.GOOD))
    results = subject.runner.measure(requests, lambda n, r: seen.append((n, r.status)))
    assert seen == [(n, r.status) for n, r in enumerate(results)]


def test_an_empty_batch_has_no_results(subject: Subject) -> None:
    assert subject.runner.measure(()) == ()


def test_results_name_the_device(subject: Subject) -> None:
    (result,) = subject.runner.measure((fakes.request(fakes.GOOD),))
    assert result.device == subject.runner.profile().device != ""


def test_kernels_on_every_core_are_measured_too(subject: Subject) -> None:
    threads = len(os.sched_getaffinity(0))
    requests = tuple(fakes.request(fakes.GOOD, threads=threads) for _ in range(20))
    assert [r.status for r in subject.runner.measure(requests)] == [Status.OK] * 20


def test_kill_minus_9_of_the_workers_loses_no_result(subject: Subject) -> None:
    """The killed candidates are tried again."""
    subject.runner.measure((fakes.request(fakes.GOOD),))
    pids = subject.worker_pids()

    def kill(number: int, _: object) -> None:
        if number == 0:
            kill_all(pids)

    requests = tuple(fakes.request(fakes.SLOW) for _ in range(3))
    results = subject.runner.measure(requests, kill)
    assert [r.status for r in results] == [Status.OK] * 3, results
    assert pids != subject.worker_pids()


def test_kill_minus_9_during_a_candidate_is_retried(subject: Subject) -> None:
    subject.runner.measure((fakes.request(fakes.GOOD),))
    pids = subject.worker_pids()
    timer = threading.Timer(0.1, kill_all, (pids,))
    timer.start()
    results = subject.runner.measure((fakes.request(fakes.SLOW), fakes.request(fakes.GOOD)))
    timer.join()
    assert [r.status for r in results] == [Status.OK, Status.OK], results
