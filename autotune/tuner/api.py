"""`autotune.tune`. In: a model, a device and a log. Out: a tuned log, and a report of the run."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.db.types import Store
from autotune.graph.feeds import Samples
from autotune.graph.ir import Graph
from autotune.layouts.choose import apply, choose, explain
from autotune.layouts.problem import LayoutProblem, problem_of
from autotune.measure.batch import plan_cores
from autotune.measure.throttle import available_cores
from autotune.measure.types import Runner
from autotune.settings import TuneSettings, load_settings
from autotune.target import Target, wanted_target
from autotune.tuner.engine import Engine, on_cores, opened
from autotune.tuner.events import OnEvent
from autotune.tuner.layouts import after_layouts, measure_layouts
from autotune.tuner.loop import tune_partition
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from autotune.tuner.whole import whole_model
from autotune.tuner.wishes import Wishes, options_of
from cost_model.models import fit_here

if TYPE_CHECKING:
    from rpc_server.runners import FarmOptions


def tune(
    model: str | Path | Graph,
    *,
    target: str | Target = "cpu",
    log: str | Path | Store = "tuning.db",
    device: str = "local",
    executor: str | Executor | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    until_gain: float | None = None,
    threads: int = 1,
    accuracy: str = "normal",
    precision: str = "float32",
    calibration: Samples | None = None,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    strategy: str = "model",
    cost_model: str = "xgb",
    pretrained: str | Path | None = None,
    settings: TuneSettings | None = None,
    cache_dir: Path | None = None,
    certs: str | Path | None = None,
    build: str = "board",
    farm: FarmOptions | None = None,
    on_event: OnEvent | None = None,
    flush: bool = False,
    dry_run: bool = False,
) -> TuneReport:
    """Measure schedules of the model's tasks and log every result.

    `model` is an .onnx file, `zoo:NAME` or a Graph; `log` a path, an SQLAlchemy URL or an open
    log; `device` 'local', 'rpc://HOST:PORT' or 'tracker://HOST:PORT/KEY'. On a board the
    target 'cpu' is the board's own. `farm`: how many boards of a tracker, with which priority.
    `trials` counts what the log already holds for these tasks, so the same call continues a run
    that was cut short. `until_gain` ends the run when the next trials promise less than this share
    of the model's time. Without any of the three, a number of trials per task from `settings`.
    `threads`, `accuracy` (normal or strict) and `precision` (float32, bf16 or int8) apply unless a
    Target is given. `cache_dir`: where this machine's measured peaks are kept between calls.
    Candidates find in the caches what the rest of the model leaves there, with `flush` nothing but
    their values. `dry_run` measures no candidate and writes no log: the report has a forecast.

    `certs`: the folder of this client's certificate, for boards on other machines. `build`: where
    candidates are built, on the 'board' or on this 'host' for boards with --accept-objects.
    `executor`: an Executor, or 'dask://HOST:PORT', whose workers do the building of this host, the
    features of large spaces and the training.

    The search starts from what `pretrained`, a file of `autotune model train`, or else the log's
    records of other tasks teach about this kind of device.

    Raises InputError for what the user can mend."""
    wishes = Wishes(
        trials=trials, time_s=time_s, until_gain=until_gain, seed=seed, strategy=strategy,
        cost_model=cost_model, pretrained=pretrained, settings=settings or load_settings(),
        boards=farm.boards if farm else 1, flush=flush, dry_run=dry_run,
    )  # fmt: skip
    wanted = wanted_target(target, threads=threads, accuracy=accuracy, precision=precision)
    graph = _prepared(model, shapes, wanted, calibration)
    # A board's packages are not needed to tune here, nor xgboost before there is data to learn.
    from rpc_server.runners import runner_for

    spare = plan_cores(available_cores(), wanted.threads).builders if device == "local" else ()
    with _opened(log, read_only=dry_run) as store, opened(executor, spare) as engine:
        runner = runner_for(
            device, wanted, cache_dir=cache_dir, certs=Path(certs) if certs else None,
            build=build, farm=farm, builds=engine.builds if engine else None,
        )  # fmt: skip
        with contextlib.closing(runner):
            wanted = _there(wanted, runner, own=device != "local" and target == "cpu")
            here = dataclasses.replace(runner.profile(), target=wanted)
            problem = problem_of(graph, wanted)
            train = engine.train if engine else fit_here
            options = options_of(wishes, graph, problem, store, here, train=train)
            listener = _listener(store, options, on_event)
            return _tuned(graph, problem, runner, store, options, listener=listener, engine=engine)


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
    store: Store,
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
        choice = choose(problem, target, store)
        partition = apply(problem, graph, target, choice.layouts)
        used_s = time.monotonic() - started_s
        options = after_layouts(problem, partition, store, options, used_s)
        whole = whole_model(graph, partition, runner, store, options)
        report = tune_partition(partition, runner, store, whole.left(), listener, engine=engine)
    report = dataclasses.replace(report, measured=report.measured + tried, layouts=explain(choice))
    return whole.timed(report)


def _listener(store: Store, options: TuneOptions, on_event: OnEvent | None) -> OnEvent | None:
    """The caller's, and one that keeps what a report tells of the cost model."""
    from autotune.db.store import TuningLog
    from autotune.tuner.rankings import keeping

    if options.dry_run or not isinstance(store, TuningLog):
        return on_event
    return keeping(store, options.model, options.target.key, on_event)


def _prepared(
    model: str | Path | Graph,
    shapes: Mapping[str, tuple[int, ...]] | None,
    target: Target,
    calibration: Samples | None,
) -> Graph:
    from autotune.frontend import load_model
    from autotune.graph.prepare import prepare

    graph = model if isinstance(model, Graph) else load_model(str(model), shapes)
    return prepare(graph, target.precision, calibration, short=target.short_tensors).graph


@contextlib.contextmanager
def _opened(log: str | Path | Store, *, read_only: bool) -> Iterator[Store]:
    """The log, closed at the end if it was opened here. A log that cannot be written is found out
    before anything is measured."""
    if not isinstance(log, str | Path):
        yield log
        return
    from autotune.db.store import TuningLog

    with TuningLog(log, read_only, missing_ok=True) as store:
        if not read_only:
            store.claim()
        yield store
