"""Tune a model's tasks on a device; every measurement is logged, so a run can go on any time."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from autotune.cli import flags, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.db.files import shown
from autotune.printable import one_line, printable

if TYPE_CHECKING:
    from autotune.tuner.forecast import Forecast
    from autotune.tuner.report import TuneReport


def arguments(parser: Parser) -> None:
    flags.add(parser, *flags.FLAGS)
    parser.add_argument(
        "--verbose", action="store_true", help="plain lines; per round, how well it was predicted"
    )


def run(options: argparse.Namespace) -> None:
    from autotune.cli.interrupt import interruptible
    from autotune.cli.progress import display
    from autotune.cli.warned import quiet_cluster
    from autotune.tuner.api import tune_request
    from autotune.tuner.request import TuneRequest

    opt.check_device(options)
    request = flags.request(TuneRequest, options, cache_dir=opt.cache_dir())
    ending = "dry run, nothing is measured" if options.dry_run else ""
    displayed = display(sys.stdout, ending=ending, verbose=options.verbose)
    quiet = quiet_cluster(options.executor)
    with quiet, displayed as listener, interruptible(listener) as on_event:
        report = tune_request(dataclasses.replace(request, on_event=on_event))
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
        return f"kernels' sum {sums}; the whole model was not run: {one_line(report.no_latency)}"
    return (
        f"latency {tables.seconds(latency.before_s)} -> {tables.seconds(latency.after_s)} "
        f"measured; kernels' sum {sums}"
    )


def expectation(guess: Forecast) -> str:
    """A forecast in one line."""
    return printable(
        f"expected: {sum(guess.trials)} trials, {tables.duration(guess.time_s)}, "
        f"{tables.seconds(guess.before_s)} -> {tables.seconds(guess.after_s)} "
        f"({guess.gain:.0%} less); ends when: {guess.reason}"
    )
