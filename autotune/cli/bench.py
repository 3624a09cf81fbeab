"""Time a model, whole and kernel by kernel, and compare with this machine's measured peak."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from autotune.cli import models, tables
from autotune.cli import options as opt
from autotune.errors import DeviceError

if TYPE_CHECKING:
    from autotune.runtime.executor import ModelTimes
    from autotune.target import Target


def arguments(parser: opt.Parser) -> None:
    opt.model(parser, "an .onnx file, zoo:NAME or a compiled model")
    parser.add_argument(
        "--repeats", type=opt.at_least(1), default=30, metavar="N", help="runs (default 30)"
    )
    parser.add_argument("--brief", action="store_true", help="the latency only, in one line")
    opt.log(parser)
    opt.target(parser)
    opt.threads(parser)
    opt.numerics(parser)


def run(options: argparse.Namespace) -> None:
    model = models.compiled(options)
    times = model.bench(options.repeats)
    if not options.brief:
        print(kernel_table(times, peak_flops(model.image.target)))
    print(summary(options.model, times, model.image.target.threads))


def peak_flops(target: Target) -> float | None:
    """Measured peak of the threads the model runs on; None where it cannot be measured here."""
    from autotune.measure.runners.local import LocalRunner

    try:
        with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
            return runner.profile().peak_flops * target.threads
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


def summary(name: str, times: ModelTimes, threads: int) -> str:
    """The latency in one line: median, spread and rate."""
    spread = f"{tables.seconds(min(times.latency_s))} to {tables.seconds(max(times.latency_s))}"
    runs = len(times.latency_s)
    return (
        f"{name}: {tables.seconds(times.median_s)} median of {runs} runs ({spread}), "
        f"{tables.gflops(times.flops, times.median_s)} GFLOP/s on {threads} "
        f"thread{'s' if threads > 1 else ''}"
    )
