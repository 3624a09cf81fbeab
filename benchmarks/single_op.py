"""Convolutions and matrix products of real networks, one by one, against the machine's limit.

In: models, and a tuning log if there is one. Out: a table with a row per task: time, GFLOP/s and
the share of the measured FMA peak, with the best logged schedule or the default one.

Usage: python benchmarks/single_op.py zoo:resnet18 net.onnx [--log tuning.db] [--threads 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from autotune.compiler.choose import candidates
from autotune.compiler.driver import open_log
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.graph.plan import describe, task_flops
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import load_target
from autotune.types import Task

OPS = ("conv2d", "matmul")
TIMING = Timing(min_repeats=10, max_repeats=60, budget_s=1.0)


def heavy_tasks(models: Iterable[str], min_flops: float) -> list[Task]:
    """Unique contractions of at least `min_flops`, in order of first use."""
    found: dict[Task, None] = {}
    for model in models:
        for task in partition(optimize(load_model(model))).weights():
            if task.op in OPS and task_flops(task) >= min_flops:
                found[task] = None
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or an .onnx file")
    parser.add_argument("--log", help="tuning log; without one, default schedules")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--min-mflop", type=float, default=100.0)
    options = parser.parse_args()
    target = load_target("cpu", options.threads)
    tasks = heavy_tasks(options.models, options.min_mflop * 1e6)
    with open_log(options.log) as log, LocalRunner(target) as runner:
        chosen = [next(candidates(task, target, log)) for task in tasks]
        peak = runner.profile().peak_flops * target.threads
        requests = tuple(
            MeasureRequest(task=task, schedule=choice.schedule, target=target, timing=TIMING)
            for task, choice in zip(tasks, chosen, strict=True)
        )
        results = runner.measure(requests)
    print(f"measured FMA peak: {peak / 1e9:.1f} GFLOP/s on {target.threads} thread(s)")
    shares = []
    for task, choice, result in zip(tasks, chosen, results, strict=True):
        if result.status != Status.OK:
            print(f"{describe(task):72} {result.status}: {result.error}")
            continue
        rate = task_flops(task) / result.median_s
        shares.append(rate / peak)
        print(
            f"{describe(task):72} {choice.source:8} {result.median_s * 1e6:9.1f} us "
            f"{rate / 1e9:7.1f} GFLOP/s {rate / peak:6.1%}"
        )
    if shares:
        good = sum(share >= 0.9 for share in shares)
        print(f"{good} of {len(tasks)} at 90 % of the peak or more; lowest {min(shares):.1%}")


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
