"""Candidates swapped in the whole model: whole runs are the judge, and time is kept."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.types import Record
from autotune.errors import DeviceError
from autotune.frontend import load_model
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureResult, Status
from autotune.runtime.image import ModelImage
from autotune.runtime.latency import Latencies, kernel_times
from autotune.target import host_target
from autotune.tuner.budget import Limits
from autotune.tuner.end_to_end import EndToEnd, end_to_end
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from autotune.tuner.swaps import allowed_s, swap
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.unit.tuner.fakes import MemoryStore

TARGET = host_target(1)
GRAPH = prepare(load_model("zoo:tiny"), TARGET.precision, None, short=False).graph
PARTS = arranged(GRAPH, TARGET)
DONE = TuneReport(
    before_s=2e-3, after_s=1e-3, trials=90, measured=90, elapsed_s=9.0, reason="done", tasks=()
)
FAST_S, NEAR_S = 1e-4, 1.05e-4
KERNELS = len(PARTS.calls)


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(TARGET) as local:
        yield local


def records(task: Task) -> tuple[Record, Record]:
    """The default, and a neighbour that was timed to be a little slower."""
    rule = rule_for(task, TARGET)
    space = rule.space(task, TARGET)
    best = cost_model.default(task, Machine.of(TARGET), rule)
    made = {rule.schedule(task, TARGET, best): best}
    for row in space.rows(64, np.random.default_rng(0)):
        config = space.config(row)
        made.setdefault(rule.schedule(task, TARGET, config), config)
    first, second = (
        Record(
            task=task, target=TARGET, rule=rule.name, config=config, schedule=schedule,
            result=MeasureResult(status=Status.OK, times_s=(seconds,)),
        )
        for (schedule, config), seconds in zip(
            itertools.islice(made.items(), 2), (FAST_S, NEAR_S), strict=True
        )
    )  # fmt: skip
    return first, second


HEAVY = next(t for t in PARTS.weights() if rule_for(t, TARGET).name == "contraction")


class Timer:
    """Seconds that are known, one pair of models after the other."""

    def __init__(self, *pairs: Latencies) -> None:
        self.pairs, self.images = list(pairs), list[ModelImage]()

    def __call__(self, images: Iterable[ModelImage], cores: Sequence[int]) -> Latencies:
        del cores
        self.images += images
        if not self.pairs:
            raise DeviceError("nothing more to time")
        return self.pairs.pop(0)


def whole(runner: LocalRunner, **limits: float) -> tuple[EndToEnd, MemoryStore]:
    store = MemoryStore([*records(HEAVY)])
    options = TuneOptions(target=TARGET, model="tiny", limits=Limits(**limits))  # type: ignore[arg-type]
    return end_to_end(GRAPH, PARTS, runner, store, options), store


def swapped(
    runner: LocalRunner, kernels: Timer, runs: Timer, clock: Callable[[], float] = lambda: 0.0
) -> tuple[tuple[Task, ...], MemoryStore]:
    model, store = whole(runner)
    return swap(model, PARTS, DONE, kernels=kernels, runs=runs, clock=clock), store


FASTER = ((4e-5,) * KERNELS, (3e-5,) * KERNELS)
SLOWER = FASTER[::-1]


def test_what_is_faster_in_the_model_becomes_the_best_of_the_log(runner: LocalRunner) -> None:
    kernels, runs = Timer(FASTER), Timer(((2e-3,), (1e-3,)))
    tasks, store = swapped(runner, kernels, runs)
    _, second = records(HEAVY)
    best = store.best(HEAVY.key, TARGET)
    assert tasks == (HEAVY,)
    assert best is not None
    assert (best.schedule, best.result.times_s) == (second.schedule, (3e-5,))
    first, other = kernels.images
    assert first.objects != other.objects


@pytest.mark.parametrize(
    ("kernels", "runs"),
    [
        (SLOWER, ((2e-3,), (1e-3,))),  # no kernel gains
        (FASTER, ((1e-3,), (2e-3,))),  # a kernel gains what others lose
        (((4e-5,), (3e-5,)), ((2e-3,), (1e-3,))),  # other kernels than the tasks'
    ],
)
def test_whole_runs_are_the_judge(
    runner: LocalRunner, kernels: Latencies, runs: Latencies
) -> None:
    tasks, store = swapped(runner, Timer(kernels), Timer(runs))
    assert tasks == ()
    assert store.kept == [*records(HEAVY)]


def test_a_model_that_does_not_run_changes_nothing(runner: LocalRunner) -> None:
    tasks, store = swapped(runner, Timer(), Timer())
    assert (tasks, store.kept) == ((), [*records(HEAVY)])


def test_it_keeps_to_its_share_of_the_time(runner: LocalRunner) -> None:
    model, _ = whole(runner, time_s=1.0)
    assert allowed_s(model) == 0.0
    assert swap(model, PARTS, DONE, kernels=Timer(), runs=Timer()) == ()
    model, _ = whole(runner, time_s=1000.0)
    assert allowed_s(model) == 100.0
    late = itertools.count(step=200.0)
    timer = Timer(FASTER)
    assert swap(model, PARTS, DONE, kernels=timer, runs=timer, clock=lambda: next(late)) == ()
    assert timer.images == []


def test_few_trials_leave_the_order_as_it_is(runner: LocalRunner) -> None:
    model, _ = whole(runner)
    few = dataclasses.replace(DONE, measured=1)
    assert swap(model, PARTS, few, kernels=Timer(FASTER), runs=Timer()) == ()


def test_kernels_are_timed_in_their_places(runner: LocalRunner) -> None:
    del runner
    from autotune.compiler.driver import compile_prepared

    image, _ = compile_prepared(GRAPH, TARGET)
    first, second = kernel_times([image, image])
    assert len(first) == len(second) == KERNELS
    assert all(seconds > 0 for seconds in first + second)
