"""Whether the times of a model's tasks add up to the model's latency.

In: models. Out: for each, after a short tuning, the sum of its tasks' best times in the log times
their calls, the latency of the compiled model, their ratio, and the kernels that differ most from
their task's time where they run in the model.

Usage: python benchmarks/task_sums.py zoo:squeezenet model.onnx [--time 30] [--kernels 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import autotune
from autotune.db.query import describe
from autotune.errors import AutotuneError
from autotune.runtime.executor import ModelTimes
from autotune.tuner.report import TuneReport

TURNS = 10
RUNS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or .onnx files")
    parser.add_argument("--time", type=float, default=30.0, help="seconds of tuning each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=3, help="that differ most, to show")
    options = parser.parse_args()
    print("model  trials  tasks ms  latency ms  tasks/latency")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            show(model, Path(folder) / "log.db", options)


def show(model: str, log: Path, options: argparse.Namespace) -> None:
    report = autotune.tune(model, log=log, time_s=options.time, threads=options.threads)
    compiled = autotune.compile(model, log=log, threads=options.threads)
    benches = quiet(compiled, options.threads)
    latency_s = fastest_tenth([s for b in benches for s in b.latency_s])
    tasks_s = report.after_s or float("nan")
    print(
        f"{model}  {report.measured}  {tasks_s * 1e3:.3f}  {latency_s * 1e3:.3f}  "
        f"{tasks_s / latency_s:.3f}",
        flush=True,
    )
    for line in differing(report, benches)[: options.kernels]:
        print(f"    {line}", flush=True)


def quiet(model: autotune.CompiledModel, threads: int) -> list[ModelTimes]:
    """Runs on the cores that candidates were timed on."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-threads:])
    try:
        return [model.bench(RUNS) for _ in range(TURNS)]
    finally:
        os.sched_setaffinity(0, cores)


def fastest_tenth(times: list[float]) -> float:
    """What is taken when nobody disturbs: the fastest tenth ends there."""
    return statistics.quantiles(times, n=10)[0]


def differing(report: TuneReport, benches: list[ModelTimes]) -> list[str]:
    """Tasks by how far their kernels in the model are from their best time, the farthest first."""
    rows = [[k.time_s for k in bench.kernels] for bench in benches]
    there: dict[str, float] = defaultdict(float)
    for kernel, times in zip(benches[0].kernels, zip(*rows, strict=True), strict=True):
        there[kernel.kernel.task_key] += min(times)
    found = []
    for task in report.tasks:
        alone_s, within_s = (task.best_s or 0.0) * task.weight, there[task.task.key]
        what = describe(task.task.to_json())
        text = f"{task.weight} x {what}: {alone_s * 1e6:.1f} us alone, {within_s * 1e6:.1f} within"
        found.append((abs(alone_s - within_s), text))
    return [text for _, text in sorted(found, reverse=True)]


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
