"""Write one self-contained page about a model's tuning: times, search, roofline, failures."""

from __future__ import annotations

import argparse
import dataclasses

from autotune.cli import models
from autotune.cli import options as opt
from autotune.errors import ConfigError
from autotune.whole_file import write_text


def arguments(parser: opt.Parser) -> None:
    opt.model(parser)
    opt.log(parser)
    opt.target(parser)
    opt.threads(parser)
    opt.numerics(parser)
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE.html")


def run(options: argparse.Namespace) -> None:
    from autotune.db import latencies
    from autotune.db.rankings import kept
    from autotune.db.store import TuningLog
    from autotune.layouts.choose import arranged
    from autotune.measure.runners.local import LocalRunner
    from autotune.report.facts import collect
    from autotune.report.page import page
    from autotune.streams import readable

    target = opt.wanted_target(options)
    shapes = opt.parse_shapes(options.shape)
    with TuningLog(options.log, read_only=True) as log:
        graph = models.load_prepared(options.model, shapes, target, options.calibration)
        partition = arranged(graph, target, log)
        with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
            profile = dataclasses.replace(runner.profile(), target=target)
        keys = [task.key for task in partition.weights()]
        rankings = kept(log, keys, target.key)
        measured = latencies.kept(log, latencies.model_key(graph), target.key)
        facts = collect(
            partition, log, profile, readable(log.name), kept=rankings, latencies=measured
        )
    write_text(options.output, page(facts), ConfigError)
    known = sum(t.best_s is not None for t in facts.tasks)
    print(f"{options.output}: {known} of {len(facts.tasks)} tasks have records")
