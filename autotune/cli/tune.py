"""Tune a model's tasks on a device; every measurement is logged, so a run can go on any time."""

from __future__ import annotations

import argparse
import sys

from autotune.cli import options as opt


def arguments(parser: opt.Parser) -> None:
    opt.model(parser)
    opt.target(parser)
    parser.add_argument(
        "--device",
        default="local",
        metavar="local | rpc://HOST:PORT",
        help="where candidates are measured (default local)",
    )
    opt.log(parser)
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--trials", type=opt.at_least(1), metavar="N", help="trials in the log when it ends"
    )
    limit.add_argument(
        "--time", type=opt.duration_s, metavar="10m", help="time to spend, such as 90s or 10m"
    )
    opt.threads(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the search (default 0)")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the tasks and the device, measure nothing"
    )


def run(options: argparse.Namespace) -> None:
    if options.dry_run:
        _dry_run(options)
        return
    import autotune
    from autotune.cli.progress import display

    with display(sys.stdout) as on_event:
        autotune.tune(
            options.model,
            target=options.target,
            log=options.log,
            device=options.device,
            trials=options.trials,
            time_s=options.time,
            threads=options.threads,
            seed=options.seed,
            shapes=opt.parse_shapes(options.shape),
            on_event=on_event,
        )
    print(f"measured results are in {options.log}")


def _dry_run(options: argparse.Namespace) -> None:
    from autotune.cli import tasks
    from autotune.target import load_target
    from rpc_server.client import open_device

    target = load_target(options.target, options.threads)
    tasks.run(options)
    runner = open_device(options.device, target, cache_dir=opt.cache_dir())
    try:
        profile = runner.profile()
    finally:
        runner.close()
    limit = "until nothing promises a gain"
    if options.trials:
        limit = f"up to {options.trials} trials"
    elif options.time:
        limit = f"for {options.time:g} s"
    print(
        f"dry run: would tune {limit} on {profile.device} "
        f"({profile.peak_flops / 1e9:.0f} GFLOP/s per core), logged in {options.log}"
    )
