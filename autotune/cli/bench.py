"""Time a model, whole and kernel by kernel, and compare with this machine's measured peak."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.cli import flags, models, on_board, peers, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    from autotune.machine.profile import DeviceProfile
    from autotune.runtime.model import ModelTimes
    from autotune.runtime.roofline import KernelProfile
    from autotune.runtime.sized import SizedModel
    from autotune.target import Target


MOST_REPEATS = 1_000_000
"""Every one is kept, of every kernel."""


def arguments(parser: Parser) -> None:
    flags.add(parser, "model", "shapes", "ranges", model=opt.COMPILED_TOO)
    opt.at(parser)
    parser.add_argument(
        "--repeats",
        type=opt.between(1, MOST_REPEATS),
        default=30,
        metavar="N",
        help="runs (default 30)",
    )
    parser.add_argument("--brief", action="store_true", help="the latency only, in one line")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="kernels by time, beside the least time that this machine allows each",
    )
    parser.add_argument("--json", action="store_true", help="the profile as JSON")
    parser.add_argument(
        "--compare",
        type=peers.names,
        default=(),
        metavar="ENGINE,...",
        help=f"time the model beside other engines, of {', '.join(peers.ENGINES)}",
    )
    flags.add(parser, "log", *flags.TARGET)
    on_board.arguments(parser)
    opt.pin(parser)
    flags.add(parser, *flags.NUMERICS)


def run(options: argparse.Namespace) -> None:
    from autotune.runtime.sized import SizedModel

    if on_board.is_away(options):
        _run_there(options)
        return
    if options.compare:
        peers.check_model(options.model)
    model = models.compiled_whole(options)
    models.pinned(options, model)
    if isinstance(model, SizedModel):
        print(_at_sizes(options, model))
        return
    models.types_of(options, model)
    if options.compare:
        print(peers.compare(options, model))
        return
    times = model.bench(options.repeats)
    target = model.image.target
    if options.profile or options.json:
        from autotune.runtime.roofline import kernel_profiles

        rows = kernel_profiles(model.image, times.kernels, machine(target))
        if options.json:
            print(json.dumps(profile_json(options.model, times, rows), indent=1))
            return
        print(profile_table(rows))
        print(limit_line(times, rows))
    elif not options.brief:
        print(kernel_table(times, peak_flops(target)))
    print(summary(options.model, times, target.threads))


def _at_sizes(options: argparse.Namespace, model: SizedModel) -> str:
    """A line for each set of sizes that --at names."""
    if options.compare or options.profile or options.json:
        raise ConfigError(
            f"--compare, --profile and --json are for fixed sizes; fix those of {options.model} "
            "with --shape"
        )
    lines = []
    for sizes in models.size_sets_at(options, model):
        said = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
        times = model.bench(sizes, options.repeats).latency_s
        spread = f"{tables.seconds(min(times))} to {tables.seconds(max(times))}"
        median = tables.seconds(statistics.median(times))
        lines.append(f"{options.model} at {said}: {median} median of {len(times)} runs ({spread})")
    return "\n".join(lines)


def _run_there(options: argparse.Namespace) -> None:
    """Time the model on a board."""
    if options.compare or options.profile or options.json:
        raise ConfigError(
            "--compare, --profile and --json are for this machine; leave them out with --device"
        )
    from autotune.graph.feeds import random_feeds

    with on_board.board_of(options) as board:
        model = on_board.compiled_for(options, board)
        found = on_board.run_there(board, model, random_feeds(model.inputs, 0), options.repeats)
        times, profile = on_board.times_of(model, found), board.profile()
    target = model.image.target
    if flags.chosen(options, ("log",)):
        on_board.keep(options, target, profile.device, times)
    if not options.brief:
        print(kernel_table(times, profile.peak_flops * target.threads))
    print(summary(options.model, times, target.threads))
    if not options.brief:
        print(on_board.conditions(found))


def machine(target: Target) -> DeviceProfile:
    """What this machine is capable of, as measured. Raises DeviceError where it cannot be."""
    from autotune.measure.runners.local import LocalRunner

    with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
        return runner.profile()


def peak_flops(target: Target) -> float | None:
    """Measured peak of the threads the model runs on; None where it cannot be measured here."""
    try:
        return machine(target).peak_flops * target.threads
    except DeviceError as error:
        print(f"note: no measured peak: {error}", file=sys.stderr)
        return None


def kernel_table(times: ModelTimes, peak: float | None) -> str:
    """A row per kernel call, in order of execution."""
    whole = sum(row.time_s for row in times.kernels)
    rows = [
        (
            str(number),
            row.kernel.op,
            row.kernel.name[:48],
            row.kernel.source,
            tables.seconds(row.time_s),
            tables.percent(row.time_s, whole),
            tables.gflops(row.kernel.flops, row.time_s),
            tables.percent(row.flops_per_s, peak),
        )
        for number, row in enumerate(times.kernels)
    ]
    header = ("#", "op", "nodes", "schedule", "time", "share", "GFLOP/s", "of peak")
    return tables.table(header, rows, right=(0, 4, 5, 6, 7))


def profile_table(rows: Sequence[KernelProfile]) -> str:
    """A row per kernel call, slowest first. GFLOP/s are of the model's operations, as direct code
    would do them; limits are of what the algorithm does."""
    whole = sum(row.time_s for row in rows)
    cells = [
        (
            str(row.number),
            row.kernel.op,
            row.kernel.name[:40],
            row.kernel.algorithm,
            tables.seconds(row.time_s),
            f"{100 * row.time_s / whole:.1f} %",
            tables.gflops(row.kernel.flops, row.time_s),
            f"{tables.count(row.nbytes)}B",
            tables.seconds(row.limit.time_s),
            row.limit.bound,
            tables.percent(row.limit.time_s, row.time_s),
        )
        for row in sorted(rows, key=lambda row: -row.time_s)
    ]
    header = (
        "#", "op", "nodes", "algorithm", "time", "share", "GFLOP/s", "bytes", "limit", "bound by",
        "of limit",
    )  # fmt: skip
    return tables.table(header, cells, right=(0, 4, 5, 6, 7, 8, 10))


def limit_line(times: ModelTimes, rows: Sequence[KernelProfile]) -> str:
    """The whole model beside the machine's limit for it."""
    from autotune.runtime.roofline import model_limit_s

    limit_s = model_limit_s(rows)
    best_s = min(times.latency_s)
    return (
        f"limit of these kernels on this machine: {tables.seconds(limit_s)}; the fastest run took "
        f"{tables.seconds(best_s)} ({tables.percent(limit_s, best_s)} of the limit)"
    )


def profile_json(name: str, times: ModelTimes, rows: Sequence[KernelProfile]) -> dict[str, Any]:
    """The profile as plain values, kernels in order of execution."""
    from autotune.runtime.roofline import model_limit_s

    return {
        "model": name,
        "median_s": times.median_s,
        "fastest_s": min(times.latency_s),
        "limit_s": model_limit_s(rows),
        "kernels": [
            {
                "op": row.kernel.op,
                "nodes": row.kernel.name,
                "schedule": row.kernel.source,
                "algorithm": row.kernel.algorithm,
                "time_s": row.time_s,
                "flops": row.kernel.flops,
                "work_flops": row.kernel.work_flops,
                "input_bytes": row.kernel.input_bytes,
                "weight_bytes": row.kernel.weight_bytes,
                "output_bytes": row.kernel.output_bytes,
                "limit_s": row.limit.time_s,
                "bound": row.limit.bound,
            }
            for row in rows
        ],
    }


def summary(name: str, times: ModelTimes, threads: int) -> str:
    """The latency in one line: median, spread and rate."""
    spread = f"{tables.seconds(min(times.latency_s))} to {tables.seconds(max(times.latency_s))}"
    runs = len(times.latency_s)
    return (
        f"{name}: {tables.seconds(times.median_s)} median of {runs} runs ({spread}), "
        f"{tables.gflops(times.flops, times.median_s)} GFLOP/s on {threads} "
        f"thread{'s' if threads > 1 else ''}"
    )
