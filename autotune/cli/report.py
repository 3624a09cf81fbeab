"""Write one self-contained page about a model's tuning: times, search, roofline, failures."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.atomic_file import write_text
from autotune.cli import flags
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.report.earlier import Earlier
    from autotune.target import Target


def arguments(parser: Parser) -> None:
    flags.add(parser, "model", "shapes", "log", *flags.TARGET, *flags.NUMERICS)
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE.html")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--since", type=opt.date(end=False), metavar="DATE",
        help="compare with the log as it was then, in UTC (default: when the whole model was "
        "measured for the last time but one)",
    )  # fmt: skip
    earlier.add_argument("--against", metavar="LOG", help="compare with another log")


@contextlib.contextmanager
def _earlier(options: argparse.Namespace, target: Target) -> Iterator[Earlier | None]:
    """What the options ask to compare with, if anything; another log is open meanwhile."""
    from autotune.db.store import TuningLog
    from autotune.report.earlier import Earlier
    from autotune.streams import readable

    if options.against is not None:
        with TuningLog(options.against, read_only=True) as other:
            yield Earlier.of_log(other, target, readable(other.name))
    else:
        yield Earlier.up_to(options.since) if options.since else None


def run(options: argparse.Namespace) -> None:
    from autotune.compiler.driver import load_prepared
    from autotune.compiler.layout_costs import arranged
    from autotune.db import latencies
    from autotune.db.rankings import kept
    from autotune.db.store import TuningLog
    from autotune.measure.runners.local import LocalRunner
    from autotune.report.facts import History, collect
    from autotune.report.page import page
    from autotune.request import CompileRequest
    from autotune.streams import readable

    request = flags.request(CompileRequest, options)
    target = request.wanted_target()
    with TuningLog(options.log, read_only=True) as log:
        graph = load_prepared(request, target, log=log).graph
        partition = arranged(graph, target, log)
        with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
            profile = dataclasses.replace(runner.profile(), target=target)
        keys = [task.key for task in partition.weights()]
        rankings = kept(log, keys, target.key)
        key = latencies.model_key(graph)
        measured = latencies.kept(log, key, target.key)
        boards = latencies.on_boards(log, key, readable(options.model))
        with _earlier(options, target) as earlier:
            history = History(
                rankings=rankings, latencies=measured, boards=boards, earlier=earlier
            )
            facts = collect(partition, log, profile, readable(log.name), history)
    write_text(options.output, page(facts), ConfigError)
    known = sum(t.best_s is not None for t in facts.tasks)
    print(f"{options.output}: {known} of {len(facts.tasks)} tasks have records")
