"""The whole model at the end of a run: measured where that is worth it, else there is a reason."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.latencies import kept, model_key
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.errors import DeviceError
from autotune.frontend import load_model
from autotune.machine import Machine
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.runtime.image import ModelImage
from autotune.runtime.latency import Latencies
from autotune.target import host_target
from autotune.tuner.budget import Limits
from autotune.tuner.end_to_end import FEW_TRIALS, SHARE, EndToEnd, end_to_end
from autotune.tuner.forecast import Forecast
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from search_spaces.rules import rule_for
from tests.unit.tuner.fakes import MemoryStore

TARGET = host_target()
GRAPH = prepare(load_model("zoo:tiny"), TARGET.precision, None, short=False).graph
DONE = TuneReport(
    before_s=2e-3, after_s=1e-3, trials=90, measured=90, elapsed_s=9.0, reason="done", tasks=()
)


def defaults() -> Iterator[MeasureRequest]:
    for task in arranged(GRAPH, TARGET).weights():
        rule = rule_for(task, TARGET)
        schedule = rule.schedule(task, TARGET, cost_model.default(task, Machine.of(TARGET), rule))
        yield MeasureRequest(
            task=task, schedule=schedule, target=TARGET, timing=Timing(budget_s=0.01)
        )


@functools.cache
def default_requests() -> tuple[MeasureRequest, ...]:
    return tuple(defaults())


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    """It has measured the default schedules of a machine in general, as every run does."""
    with LocalRunner(TARGET) as local:
        local.measure(default_requests())
        yield local


class Timer:
    """Times that are known; remembers what was to be timed."""

    def __init__(self) -> None:
        self.images: list[ModelImage] = []
        self.cores: tuple[int, ...] = ()

    def __call__(self, images: Iterable[ModelImage], cores: Sequence[int]) -> Latencies:
        self.images, self.cores = list(images), tuple(cores)
        return (4e-3, 3e-3, 5e-3), (2e-3,)


def whole(runner: object, log: object = None, **options: object) -> EndToEnd:
    wanted = TuneOptions(target=TARGET, model="tiny", **options)  # type: ignore[arg-type]
    store = MemoryStore() if log is None else log
    parts = arranged(GRAPH, TARGET)
    return end_to_end(GRAPH, parts, runner, store, wanted)  # type: ignore[arg-type]


def trial(device: str) -> Record:
    request = default_requests()[0]
    rule = rule_for(request.task, TARGET)
    return Record(
        task=request.task,
        target=TARGET,
        rule=rule.name,
        config=cost_model.default(request.task, Machine.of(TARGET), rule),
        schedule=request.schedule,
        result=MeasureResult(status=Status.OK, times_s=(1e-3,), device=device),
    )


def test_what_it_took_is_in_the_report_and_in_the_log(runner: LocalRunner, tmp_path: Path) -> None:
    timer = Timer()
    with TuningLog(tmp_path / "log.db") as log:
        latency = whole(runner, log).timed(DONE, timer).latency
        assert latency is not None
        (there,) = kept(log, model_key(GRAPH), TARGET.key)
    assert (latency.before_s, latency.after_s) == (4e-3, 2e-3)
    assert (there.before, there.after) == (latency.before, latency.after)
    assert (there.kernels_before_s, there.kernels_after_s) == (2e-3, 1e-3)
    assert len(timer.images) == 2
    assert timer.cores == runner.timing_cores


def test_what_a_killed_run_left_undone_the_next_one_does(
    runner: LocalRunner, tmp_path: Path
) -> None:
    """Trials count until the model was timed here, whichever run made them."""
    nothing_new = dataclasses.replace(DONE, measured=0)
    times = iter(f"2026-01-01T00:00:{n:02}" for n in range(60))
    with TuningLog(tmp_path / "log.db", now=lambda: next(times)) as log:
        left = trial(runner.profile().device)
        log.append([left] * (FEW_TRIALS - 1) + [trial("elsewhere")] * FEW_TRIALS)
        assert "fewer than" in whole(runner, log).timed(nothing_new, Timer()).no_latency
        log.append([left])
        assert whole(runner, log).timed(nothing_new, Timer()).latency is not None
        assert "fewer than" in whole(runner, log).timed(nothing_new, Timer()).no_latency


def test_kernels_that_were_measured_are_not_built_again(runner: LocalRunner) -> None:
    timer = Timer()
    whole(runner).timed(DONE, timer)
    built = [runner.built(request) for request in default_requests()]
    for image in timer.images:
        # Behind them come the code that zeroes halos and the entry.
        assert image.objects[: len(built)] == tuple(b.code for b in built if b is not None)


@pytest.mark.parametrize(
    ("options", "report", "words"),
    [
        ({"limits": Limits(time_s=10.0)}, DONE, "much of a run of 10 s"),
        ({}, dataclasses.replace(DONE, measured=FEW_TRIALS - 1), "fewer than"),
        ({}, dataclasses.replace(DONE, after_s=None), "without a record"),
    ],
)
def test_there_is_a_reason_where_it_is_not_run(
    runner: LocalRunner, options: dict[str, object], report: TuneReport, words: str
) -> None:
    timer = Timer()
    told = whole(runner, **options).timed(report, timer)
    assert told.latency is None
    assert words in told.no_latency
    assert not timer.images


def test_a_dry_run_expects_the_time_it_takes(runner: LocalRunner) -> None:
    timer, model = Timer(), whole(runner, dry_run=True)
    guess = Forecast(trials=(90,), time_s=9.0, before_s=2e-3, after_s=1e-3, reason="done")
    few = dataclasses.replace(guess, trials=(FEW_TRIALS - 1,))
    for expected, time_s in ((guess, 9.0 + model.cost_s), (few, 9.0)):
        told = model.timed(dataclasses.replace(DONE, forecast=expected), timer)
        assert told.forecast == dataclasses.replace(expected, time_s=time_s)
        assert "nothing is measured" in told.no_latency
    assert not timer.images


def test_boards_run_kernels_only() -> None:
    assert "boards" in whole(object()).timed(DONE, Timer()).no_latency


def test_a_model_that_does_not_run_ends_no_run(runner: LocalRunner) -> None:
    def broken(images: Iterable[ModelImage], cores: Sequence[int]) -> Latencies:
        raise DeviceError(f"{len(list(images))} models on {len(cores)} cores: killed")

    told = whole(runner).timed(DONE, broken)
    assert told.latency is None
    assert "killed" in told.no_latency


def test_its_time_is_part_of_the_runs(runner: LocalRunner) -> None:
    model = whole(runner, limits=Limits(time_s=1000.0))
    left_s = model.left().limits.time_s
    assert left_s is not None
    assert 1000.0 * (1 - SHARE) <= left_s < 1000.0
    for options in (model.options, whole(runner, limits=Limits(trials=50)).options):
        unlimited = dataclasses.replace(options, limits=Limits(trials=50))
        assert dataclasses.replace(model, options=unlimited).left() == unlimited
