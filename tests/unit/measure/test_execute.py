"""The native executor, in this process, on small tasks."""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest

from autotune.errors import AutotuneError
from autotune.measure.execute import CHECKED_POINTS, Kernel, NativeExecutor, make_case
from autotune.measure.executor import Built
from autotune.measure.throttle import Throttling
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.program.ir import Pack
from autotune.schedule.base import schedule_from_json
from autotune.target import host_target
from autotune.types import Task
from tests.unit.measure import tasks

QUICK = Timing(budget_s=0.01, min_repeat_s=0.0002)


def request(task: Task, threads: int = 1) -> MeasureRequest:
    return MeasureRequest(
        task=task, schedule=(), target=host_target(threads), timing=QUICK, seed=3
    )


@pytest.fixture(scope="module")
def executor() -> NativeExecutor:
    return NativeExecutor()


@pytest.mark.parametrize(
    "task",
    [
        tasks.matmul(),
        tasks.matmul(3, 5, 7),
        tasks.conv(5, 3),
        tasks.elementwise("relu", "float32"),
        tasks.elementwise("neg", "int64"),
        tasks.elementwise("not", "bool"),
    ],
    ids=lambda t: t.key,
)
def test_a_right_kernel_is_timed(executor: NativeExecutor, task: Task) -> None:
    asked = request(task)
    result = executor.check_and_time(asked, executor.build(asked))
    assert (result.status, result.error) == (Status.OK, "")
    assert len(result.times_s) >= QUICK.min_repeats
    assert 0 < result.calibration_s < result.run_s
    assert result.max_error < 1e-5


class ThrottledAtFirst(Throttling):
    """Throttled while the first samples are taken."""

    def __init__(self) -> None:
        super().__init__(())
        self.asked = 0

    def count(self) -> int:
        self.asked += 1
        return int(self.asked > 1)

    def conditions(self) -> str:
        return "1200 MHz, 84 C"


def test_what_was_timed_on_a_throttled_core_is_timed_again() -> None:
    throttling = ThrottledAtFirst()
    executor, asked = NativeExecutor(throttling=throttling), request(tasks.matmul())
    result = executor.check_and_time(asked, executor.build(asked))
    assert result.status is Status.OK
    assert throttling.asked == 4
    assert result.conditions == "1200 MHz, 84 C"


def test_kernels_of_two_threads_are_timed(executor: NativeExecutor) -> None:
    asked = request(tasks.matmul(), threads=2)
    assert executor.check_and_time(asked, executor.build(asked)).status is Status.OK


def test_a_kernel_of_another_function_is_wrong(executor: NativeExecutor) -> None:
    other = executor.build(request(tasks.elementwise("neg", "float32")))
    result = executor.check_and_time(request(tasks.elementwise("relu", "float32")), other)
    assert result.status is Status.WRONG_RESULT
    assert result.times_s == ()
    assert "expected" in result.error


def test_a_kernel_that_leaves_elements_out_is_wrong(executor: NativeExecutor) -> None:
    other = executor.build(request(tasks.elementwise("relu", "float32", (64,))))
    result = executor.check_and_time(
        request(tasks.elementwise("relu", "float32", (CHECKED_POINTS * 3,))), other
    )
    assert result.status is Status.WRONG_RESULT
    assert "nan" in result.error


def test_a_kernel_that_writes_too_far_is_wrong(executor: NativeExecutor) -> None:
    other = executor.build(request(tasks.elementwise("relu", "float32", (80,))))
    result = executor.check_and_time(request(tasks.elementwise("relu", "float32", (64,))), other)
    assert result.status is Status.WRONG_RESULT
    assert "outside" in result.error


def test_wrong_weights_are_a_wrong_result(executor: NativeExecutor) -> None:
    """The pack that a program asks for is what it gets."""
    asked = request(tasks.matmul(8, 16, 32))
    built = executor.build(asked)
    pack = Pack("c0", (16, 32), ((1, 8),), (1, 0, 2))
    result = executor.check_and_time(asked, dataclasses.replace(built, packs=(pack,)))
    assert result.status is Status.WRONG_RESULT


def test_an_illegal_schedule_does_not_build(executor: NativeExecutor) -> None:
    schedule = schedule_from_json([{"step": "parallel", "loop": "nowhere"}])
    with pytest.raises(AutotuneError, match="nowhere"):
        executor.build(dataclasses.replace(request(tasks.matmul()), schedule=schedule))


def test_the_data_of_a_task_is_made_once(executor: NativeExecutor) -> None:
    asked = request(tasks.matmul(4, 4, 4))
    executor.prepare(asked)
    before = executor._cases.of(asked)
    executor.check_and_time(asked, executor.build(asked))
    assert executor._cases.of(asked) is before
    assert before.accepted is not None


def test_cached_data_is_bounded() -> None:
    executor = NativeExecutor(cache_bytes=100_000)
    for size in range(60, 70):
        executor._cases.of(request(tasks.matmul(size, size, size)))
    kept = executor._cases._cases.values()
    assert 1 <= len(kept) < 10
    assert sum(c.nbytes() for c in kept) <= 100_000


def test_a_task_larger_than_memory_is_refused() -> None:
    with pytest.raises(AutotuneError, match="memory"):
        make_case(tasks.elementwise("relu", "float32", (1 << 22, 1 << 20)), 0)


def test_a_task_that_is_too_large_says_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """9.6 GB are less than the 25 GB there are: the limit is what three copies take."""
    memory = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 25_276_514_304 // 4096}
    monkeypatch.setattr("os.sysconf", memory.__getitem__)
    said = (
        r"take 8.9 GiB, measuring keeps them 3 times, and this machine has 23.5 GiB of memory: "
        r"at most 7.8 GiB can be measured here"
    )
    with pytest.raises(AutotuneError, match=said):
        make_case(tasks.elementwise("relu", "float32", (1_200_000_000,)), 0)


def test_a_built_candidate_travels_as_header_and_code() -> None:
    built = Built(
        symbol="k", code=b"\0\1", workspace_bytes=64, build_s=0.5,
        packs=(Pack("c0", (16, 32), ((1, 8),), (1, 0, 2)),),
    )  # fmt: skip
    assert Built.from_header(built.header(), built.code) == built


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_among_other_data_are_timed(executor: NativeExecutor, threads: int) -> None:
    asked = request(tasks.matmul(), threads)
    timing = dataclasses.replace(QUICK, foreign_bytes=1 << 20)
    asked = dataclasses.replace(asked, timing=timing)
    result = executor.check_and_time(asked, executor.build(asked))
    assert result.status is Status.OK
    assert len(result.times_s) >= QUICK.min_repeats


def test_threads_are_called_together_last_before_a_call(
    executor: NativeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Recorder:
        overhead_s = 0.0

        def between_calls(self, *_: object) -> None:
            events.append("moved")

        def gather(self) -> None:
            events.append("gathered")

        def clock(self) -> float:
            events.append("processor clock")
            return 0.0

    asked, recorder = request(tasks.matmul()), Recorder()
    kernel = Kernel(asked, executor.build(asked), executor._cases.of(asked), time.perf_counter)
    monkeypatch.setattr(kernel, "_cpu_clock", recorder.clock)
    monkeypatch.setattr(kernel, "_call", lambda *_: events.append("called"))
    kernel.run_among(recorder, recorder, QUICK, 1)  # type: ignore[arg-type]
    assert events == ["moved", "processor clock", "gathered", "called", "processor clock"]


def test_values_are_as_old_as_the_timing_says(executor: NativeExecutor) -> None:
    asked = request(tasks.matmul())
    name, far = asked.task.by_role("input")[0].name, 8 << 20
    timing = dataclasses.replace(
        QUICK, foreign_bytes=1 << 20, apart_s=0.001, reuse_distances=((name, far, 0.001, 1.0),)
    )
    asked = dataclasses.replace(asked, timing=timing)
    assert MeasureRequest.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    kernel = Kernel(asked, executor.build(asked), executor._cases.of(asked), time.perf_counter)
    block = executor._cases.of(asked).inputs[name].block
    ages = [p.age_bytes for p in kernel.pieces if np.shares_memory(p.block, block)]
    assert ages == [far]
    assert executor.check_and_time(asked, executor.build(asked)).status is Status.OK
