"""`autotune.tune`. In: a model, a device and a log. Out: a tuned log, and a report of the run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.compiler.driver import check_preparing, checked_graph, prepared
from autotune.compiler.layout_costs import choose_layouts
from autotune.db.types import LogStore
from autotune.errors import ConfigError
from autotune.frontend import open_model
from autotune.frontend.open_sizes import OpenModel
from autotune.graph import memory_limit as room
from autotune.graph.ir import Graph
from autotune.machine.profile import DeviceProfile
from autotune.measure.batch import plan_cores
from autotune.measure.runners.described import DescribedRunner
from autotune.measure.throttle import available_cores
from autotune.measure.types import Runner
from autotune.memory import physical_bytes
from autotune.placement.layout_choice import apply, explain
from autotune.placement.layout_problem import LayoutProblem, problem_of
from autotune.request import taking
from autotune.target import Target
from autotune.tuner import swaps
from autotune.tuner.end_to_end import end_to_end
from autotune.tuner.engine import Engine, on_cores, opened
from autotune.tuner.events import OnEvent
from autotune.tuner.layouts import after_layouts, measure_layouts
from autotune.tuner.loop import tune_partition, tune_tasks
from autotune.tuner.open_sizes import NOT_WHOLE, opened_parts, ranges_of, samples_of, sets_of
from autotune.tuner.open_timing import between_calls
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from autotune.tuner.request import TuneRequest
from autotune.tuner.resolve import options_of, options_of_tasks
from autotune.tuner.rewrites import measured_choice
from cost_model.models import fit_here


@taking(TuneRequest)
def tune(request: TuneRequest) -> TuneReport:
    """Measure schedules of the model's tasks and log every result.

    `trials`, `time_s` and `until_gain` end the run, whichever comes first; without any of the
    three, a number of trials per task from `settings`."""
    return tune_request(request)


def tune_request(request: TuneRequest) -> TuneReport:
    """See `tune`."""
    wanted, here = request.wanted_target(), request.device == "local"
    described = _described(request)
    loaded = _loaded(request, here)
    if isinstance(loaded, Graph):
        check_preparing(loaded, request, wanted)
    # A board's packages are not needed to tune here, nor xgboost before there is data to learn.
    from rpc_server.runners import runner_for

    spare = plan_cores(available_cores(), wanted.threads).builders if here else ()
    with (
        _opened(request.log, read_only=request.dry_run) as store,
        opened(request.executor, spare) as engine,
    ):
        runner = DescribedRunner(described) if described else runner_for(
            request.device, wanted,
            cache_dir=request.measured_folder(),
            certs=Path(request.certs) if request.certs else None,
            build=request.build, farm=request.farm, builds=engine.builds if engine else None,
        )  # fmt: skip
        with contextlib.closing(runner):
            wanted = _there(wanted, runner, own=not here and request.target == "cpu")
            profile = dataclasses.replace(runner.profile(), target=wanted)
            train = engine.train if engine else fit_here
            if not isinstance(loaded, Graph):
                return _tuned_open(loaded, request, runner, store, profile=profile, engine=engine)
            first = prepared(loaded, request, wanted, store)
            problem = problem_of(first.graph, wanted)
            if here:
                room.check_tasks(problem.dense.weights(), physical_bytes())
            options = options_of(request, first.graph, problem, store, profile, train=train)
            again = functools.partial(prepared, loaded, request, wanted, store)
            chosen, left, tried = measured_choice(first, again, runner, store, options)
            if tried:
                problem = problem_of(chosen.graph, wanted)
                options = options_of(request, chosen.graph, problem, store, profile, train=train)
                options = dataclasses.replace(options, limits=left.limits)
            listener = _listener(store, options, request.on_event)
            report = _tuned(
                chosen.graph, problem, runner, store, options, listener=listener, engine=engine
            )
            return dataclasses.replace(report, measured=report.measured + tried)


def _loaded(request: TuneRequest, here: bool) -> Graph | OpenModel:
    """The model's graph, or, where sizes are open, the model with its symbols; `here`: it is run
    on this machine."""
    opened = open_model(request.model, request.shapes)
    if not isinstance(opened, Graph):
        sets_of(ranges_of(opened, request), request)  # wrong ones are told before any work
        return opened
    if request.at:
        raise ConfigError("--at is for open sizes, those of the model are fixed")
    return checked_graph(opened, request, fits=here)


def _tuned_open(
    model: OpenModel,
    request: TuneRequest,
    runner: Runner,
    store: LogStore,
    *,
    profile: DeviceProfile,
    engine: Engine | None,
) -> TuneReport:
    """A run over samples of all sizes."""
    ranges, train = ranges_of(model, request), engine.train if engine else fit_here
    with on_cores(getattr(runner, "spare_cores", ())):
        opened = opened_parts(model, ranges, profile, log=store, calibration=request.calibration)
        found = samples_of(opened, sets_of(ranges, request), store)
        options = options_of_tasks(
            request, found.weights, model.name, store, profile,
            train=train, between=between_calls(opened.parts, found.sets, profile),
        )  # fmt: skip
        listener = _listener(store, options, request.on_event)
        report = tune_tasks(
            found.weights, found.names, runner, store, options, on_event=listener, engine=engine
        )
    return dataclasses.replace(report, no_latency=NOT_WHOLE)


def _described(request: TuneRequest) -> DeviceProfile | None:
    """The machine that a forecast is for, if it is not this one. Raises ConfigError where more
    than a forecast is asked for."""
    if request.machine is not None and (not request.dry_run or request.device != "local"):
        raise ConfigError(
            "a machine's description is for a forecast, candidates are measured where they run; "
            "ask for a dry run (--dry-run) without a device, or leave --machine out"
        )
    return request.wanted_profile()


def _there(wanted: Target, runner: Runner, *, own: bool) -> Target:
    """The target as the runner's device has it; `own`: it is whatever that device is."""
    if own:
        wanted = dataclasses.replace(
            runner.profile().target,
            threads=wanted.threads,
            accuracy=wanted.accuracy,
            precision=wanted.precision,
        )
    return wanted.within(runner.profile().target) if wanted.is_gpu else wanted


def _tuned(
    graph: Graph,
    problem: LayoutProblem,
    runner: Runner,
    store: LogStore,
    options: TuneOptions,
    *,
    listener: OnEvent | None,
    engine: Engine | None,
) -> TuneReport:
    """A run: layouts first, then the tasks of those chosen, then the whole model. The cost
    model's work too stays off the cores that time candidates."""
    target = options.target
    with on_cores(getattr(runner, "spare_cores", ())):
        started_s = time.monotonic()
        tried = measure_layouts(problem, runner, store, options)
        choice = choose_layouts(problem, target, store)
        partition = apply(problem, graph, target, choice.layouts)
        used_s = time.monotonic() - started_s
        options = after_layouts(problem, partition, store, options, used_s)
        whole = end_to_end(graph, partition, runner, store, options)
        left = whole.left()
        left = dataclasses.replace(left, limits=left.limits.without(swaps.allowed_s(whole)))
        report = tune_partition(partition, runner, store, left, listener, engine=engine)
        swaps.swap(whole, partition, report)
    report = dataclasses.replace(report, measured=report.measured + tried, layouts=explain(choice))
    return whole.timed(report)


def _listener(store: LogStore, options: TuneOptions, on_event: OnEvent | None) -> OnEvent | None:
    """The caller's, and one that keeps what a report tells of the cost model."""
    from autotune.db.store import TuningLog
    from autotune.tuner.rankings import keeping

    if options.dry_run or not isinstance(store, TuningLog):
        return on_event
    return keeping(store, options.model, options.target.key, on_event)


@contextlib.contextmanager
def _opened(log: str | os.PathLike[str] | LogStore, *, read_only: bool) -> Iterator[LogStore]:
    """The log, closed at the end if it was opened here. A log that cannot be written is found out
    before anything is measured."""
    if not isinstance(log, str | os.PathLike):
        yield log
        return
    from autotune.db.store import TuningLog

    with TuningLog(os.fspath(log), read_only, missing_ok=True) as store:
        if not read_only:
            store.claim()
        yield store
