"""List the tasks of a model: what there is to tune, how much it weighs and what is known."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from autotune.cli import flags, tables
from autotune.cli import options as opt
from autotune.cli.tune import expectation
from autotune.command_line import Parser
from autotune.printable import printable

if TYPE_CHECKING:
    from autotune.machine.profile import DeviceProfile
    from autotune.types import Task


def arguments(parser: Parser) -> None:
    flags.add(parser, "model", "shapes", "log", *flags.TARGET, *flags.MACHINE, *flags.NUMERICS)
    parser.add_argument(
        "--why", action="store_true", help="what tuning would do next with every task, and why"
    )


def run(options: argparse.Namespace) -> None:
    if options.why:
        _explain(options)
    else:
        _list(options)


def _explain(options: argparse.Namespace) -> None:
    """The budget's decision per task, as far as the log tells."""
    from autotune.compiler.driver import load_prepared
    from autotune.db.opening import open_log
    from autotune.db.query import describe
    from autotune.tuner.api import tune_request
    from autotune.tuner.request import TuneRequest

    cache = opt.cache_dir()
    request = flags.request(TuneRequest, options, cache_dir=cache, dry_run=True)
    report = tune_request(request)
    assert report.forecast is not None
    rows = [
        (
            task.task.key,
            describe(task.task.to_json())[:56],
            str(task.weight),
            tables.seconds(task.best_s),
            str(task.trials),
            f"+{more}" if more else "stop",
            task.why,
        )
        for task, more in zip(report.tasks, report.forecast.trials, strict=True)
    ]
    header = ("task", "what", "calls", "best", "trials", "next", "why")
    print(tables.table(header, rows, right=(2, 3, 4, 5)))
    with contextlib.closing(open_log(options.log, missing_ok=True)) as log:
        steps = load_prepared(request, request.wanted_target(), log=log).derivation
    for step in steps:
        print(f"rewrite {printable(str(step))}")
    for line in report.layouts:
        print(f"layout {printable(line)}")
    print(expectation(report.forecast))


def _list(options: argparse.Namespace) -> None:
    from autotune.compiler.choose import candidates
    from autotune.compiler.driver import partition_with
    from autotune.compiler.precision import kept_float32
    from autotune.db.opening import open_log
    from autotune.db.query import describe
    from autotune.request import CompileRequest
    from autotune.tasks.flops import task_flops
    from search_spaces.sound import space_of

    request = flags.request(CompileRequest, options)
    target, profile = request.wanted_target(), request.wanted_profile()
    rows, known_s, missing = [], 0.0, 0
    with contextlib.closing(open_log(options.log, missing_ok=True)) as log:
        weights = partition_with(request, target, log).weights()
        for task, weight in weights.items():
            best = log.best(task.key, target)
            time_s = best.result.median_s if best else None
            known_s += weight * (time_s or 0.0)
            missing += time_s is None
            flops = task_flops(task)
            space = space_of(task, target)
            rows.append(
                (
                    task.key,
                    describe(task.to_json()),
                    str(weight),
                    tables.count(flops),
                    tables.count(space.size if space.size is not None else space.raw_size),
                    tables.seconds(time_s),
                    tables.gflops(flops, time_s),
                    *([tables.seconds(_predicted_s(task, profile))] if profile else []),
                )
            )
        chosen = (
            (task, next(candidates(task, target, log, profile)).schedule) for task in weights
        )
        kept = kept_float32(chosen, target)
    header = ("task", "what", "calls", "FLOP", "space", "best", "GFLOP/s",
              *["predicted"] * (profile is not None))  # fmt: skip
    print(tables.table(header, rows, right=range(2, len(header))))
    state = f"{missing} without a record" if missing else f"{tables.seconds(known_s)} in all"
    print("\n".join([f"{len(weights)} tasks, {sum(weights.values())} calls, {state}", *kept]))


def _predicted_s(task: Task, profile: DeviceProfile) -> float:
    """Seconds of the default schedule on the machine that was described."""
    import cost_model
    from autotune.machine import Machine

    machine = Machine.of(profile.target, profile)
    rule, config, _ = cost_model.default_of(task, machine)
    return float(cost_model.predict(task, machine, [config], rule).seconds[0])
