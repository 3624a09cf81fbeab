"""List the tasks of a model: what there is to tune, how much it weighs and what is known."""

from __future__ import annotations

import argparse
import contextlib

from autotune.cli import models, tables
from autotune.cli import options as opt


def arguments(parser: opt.Parser) -> None:
    opt.model(parser)
    opt.log(parser)
    opt.target(parser)
    opt.threads(parser)
    opt.numerics(parser)


def run(options: argparse.Namespace) -> None:
    from autotune.db.opening import open_log
    from autotune.db.query import describe
    from autotune.graph.plan import task_flops
    from autotune.target import wanted_target
    from search_spaces.rules import rule_for

    target = wanted_target(
        options.target,
        threads=options.threads,
        accuracy=options.accuracy,
        precision=options.precision,
    )
    parts = models.load_partition(options.model, opt.parse_shapes(options.shape))
    weights = parts.weights()
    rows, known_s, missing = [], 0.0, 0
    with contextlib.closing(open_log(options.log, missing_ok=True)) as log:
        for task, weight in weights.items():
            best = log.best(task.key, target)
            time_s = best.result.median_s if best else None
            known_s += weight * (time_s or 0.0)
            missing += time_s is None
            flops = task_flops(task)
            space = rule_for(task).space(task, target)
            rows.append(
                (
                    task.key,
                    describe(task.to_json()),
                    str(weight),
                    tables.count(flops),
                    tables.count(space.size if space.size is not None else space.raw_size),
                    tables.seconds(time_s),
                    tables.gflops(flops, time_s),
                )
            )
    header = ("task", "what", "calls", "FLOP", "space", "best", "GFLOP/s")
    print(tables.table(header, rows, right=(2, 3, 4, 5, 6)))
    state = f"{missing} without a record" if missing else f"{tables.seconds(known_s)} in all"
    print(f"{len(weights)} tasks, {sum(weights.values())} calls, {state}")
