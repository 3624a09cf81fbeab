"""Tune a model's tasks on a device; every measurement is logged, so a run can go on any time."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING

from autotune.cli import options as opt
from autotune.cli import tables
from autotune.db.files import shown

if TYPE_CHECKING:
    from autotune.tuner.forecast import Forecast
    from autotune.tuner.report import TuneReport


def arguments(parser: opt.Parser) -> None:
    opt.model(parser)
    opt.target(parser)
    _place_arguments(parser)
    opt.log(parser)
    _end_arguments(parser)
    opt.threads(parser)
    opt.numerics(parser)
    _search_arguments(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="plain lines; per round, how well it was predicted"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="estimate trials, time and gain; measure nothing"
    )


def _place_arguments(parser: opt.Parser) -> None:
    """Where it is done."""
    parser.add_argument(
        "--device",
        default="local",
        metavar="local | rpc://HOST:PORT | tracker://HOST:PORT/KEY",
        help="where candidates are measured (default local)",
    )
    opt.farm(parser)
    parser.add_argument(
        "--certs", metavar="DIR", help="folder of your certificate (see rpc_server certs)"
    )
    parser.add_argument(
        "--build",
        choices=("board", "host"),
        default="board",
        help="where candidates are built; host: for boards with --accept-objects (default board)",
    )
    opt.executor(parser, "candidates are built, described and learnt from")


def _end_arguments(parser: opt.Parser) -> None:
    """When it ends."""
    parser.add_argument(
        "--trials", type=opt.at_least(1), metavar="N", help="trials in the log when it ends"
    )
    parser.add_argument(
        "--time", type=opt.duration_s, metavar="10m", help="time to spend, such as 90s or 10m"
    )
    parser.add_argument(
        "--until-gain",
        type=opt.share,
        metavar="1%",
        help="end when the next trials promise less than this, end to end",
    )


def _search_arguments(parser: opt.Parser) -> None:
    """How it searches and measures."""
    parser.add_argument(
        "--seed", type=opt.at_least(0), default=0, help="of the search (default 0)"
    )
    parser.add_argument(
        "--strategy", default="model", metavar="NAME", help="of the search (default model)"
    )
    parser.add_argument("--config", metavar="FILE.toml", help="settings; see configs/tune")
    parser.add_argument(
        "--flush",
        action="store_true",
        help="time every call with nothing but its inputs in the caches, whatever the model",
    )
    parser.add_argument(
        "--model",
        dest="pretrained",
        metavar="FILE.json",
        help="start from this cost model (see autotune model train), not from the log's records",
    )


def run(options: argparse.Namespace) -> None:
    import autotune
    from autotune.cli.interrupt import interruptible
    from autotune.cli.progress import display
    from autotune.settings import load_settings

    opt.check_device(options)
    if options.executor != "local":
        logging.disable(logging.ERROR)  # what a cluster has to say, we say in one line
    ending = "dry run, nothing is measured" if options.dry_run else ""
    displayed = display(sys.stdout, ending=ending, verbose=options.verbose)
    with displayed as listener, interruptible(listener) as on_event:
        report = autotune.tune(
            options.model,
            target=options.target,
            log=options.log,
            device=options.device,
            executor=options.executor,
            trials=options.trials,
            time_s=options.time,
            until_gain=options.until_gain,
            threads=options.threads,
            accuracy=options.accuracy,
            precision=options.precision,
            calibration=options.calibration,
            seed=options.seed,
            shapes=opt.parse_shapes(options.shape),
            strategy=options.strategy,
            pretrained=options.pretrained,
            settings=load_settings(options.config),
            cache_dir=opt.cache_dir(),
            certs=options.certs,
            build=options.build,
            farm=opt.farm_options(options),
            on_event=on_event,
            flush=options.flush,
            dry_run=options.dry_run,
        )
    if report.forecast:
        print(expectation(report.forecast))
        print(f"results would go to {shown(options.log)}")
    else:
        print(gained(report))
        print(f"measured results are in {shown(options.log)}")


def gained(report: TuneReport) -> str:
    """What the model gained, in one line."""
    sums = f"{tables.seconds(report.before_s)} -> {tables.seconds(report.after_s)}"
    latency = report.latency
    if latency is None:
        return f"kernels' sum {sums}; the whole model was not run: {report.no_latency}"
    return (
        f"latency {tables.seconds(latency.before_s)} -> {tables.seconds(latency.after_s)} "
        f"measured; kernels' sum {sums}"
    )


def expectation(guess: Forecast) -> str:
    """A forecast in one line."""
    return (
        f"expected: {sum(guess.trials)} trials, {tables.duration(guess.time_s)}, "
        f"{tables.seconds(guess.before_s)} -> {tables.seconds(guess.after_s)} "
        f"({guess.gain:.0%} less); ends when: {guess.reason}"
    )
