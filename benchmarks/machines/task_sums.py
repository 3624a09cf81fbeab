"""Whether the times of a model's tasks add up to the model's latency.

In: models. Out: for each, the sum of its tasks' times times their calls over the latency of the
compiled model, by the fastest turns and by medians, and the kernels that differ most from their
task's time where they run in the model. The tasks are timed as `tune` times candidates, by turns
with runs of the model, each with the schedule that the model has: the default, or the best of a
log or of a tuning before (--time).

Usage: python benchmarks/machines/task_sums.py zoo:squeezenet model.onnx [--threads 2] [--time 30]
           [--log tuning.db] [--turns 3] [--kernels 3]
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import autotune
from autotune.compiler.choose import candidates
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.compiler.together import packed_weights, weighty_defaults
from autotune.db.query import describe
from autotune.db.store import TuningLog
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest
from autotune.placement.types import Partition
from autotune.runtime.model import CompiledModel, ModelTimes
from autotune.settings import load_settings
from autotune.target import Target
from autotune.tuner.resolve import all_reuse_distances, calls_s, moved_bytes

RUNS = 10
"""Of the model, before and after each timing of its tasks."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What runs of the model took, and the tasks by its side. Seconds; tasks by key."""

    benches: list[ModelTimes]
    turns: list[dict[str, float]]
    """Medians of every task, turn by turn."""

    @property
    def latency_s(self) -> float:
        """When nobody disturbs: the fastest tenth of the runs ends there."""
        return statistics.quantiles(self._runs(), n=10)[0]

    @property
    def median_latency_s(self) -> float:
        return statistics.median(self._runs())

    def _runs(self) -> list[float]:
        return [s for bench in self.benches for s in bench.latency_s]

    def alone(self) -> dict[str, float]:
        """A task's fastest turn."""
        return {key: min(turn[key] for turn in self.turns) for key in self.turns[0]}

    def usually(self) -> dict[str, float]:
        return {key: statistics.median(turn[key] for turn in self.turns) for key in self.turns[0]}


def main() -> None:
    parser = model_options((__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kernels", type=int, default=3, help="that differ most, to show")
    options = parser.parse_args()
    print("model  tasks ms  latency ms  tasks/latency  of medians", flush=True)
    for model, log in tuned(options):
        show(model, log, options)


def model_options(description: str) -> argparse.ArgumentParser:
    """Which models, and how they are tuned."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="+", help="zoo:NAME or .onnx files")
    parser.add_argument("--time", type=float, default=0.0, help="seconds of tuning each, before")
    parser.add_argument("--log", type=Path, help="whose schedules are taken, and tuned into")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def tuned(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Each model, tuned where that was asked for, and its log, which may not be there yet."""
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            log = options.log or Path(folder) / "log.db"
            if options.time:
                autotune.tune(model, log=log, time_s=options.time, threads=options.threads)
            yield model, log


def show(model: str, log: Path, options: argparse.Namespace) -> None:
    compiled = autotune.compile(model, log=log if log.exists() else None, threads=options.threads)
    target = compiled.image.target
    graph = prepare(load_model(model, None), target.precision, None).graph
    with TuningLog(log, read_only=True, missing_ok=True) as store:
        partition = arranged(graph, target, store)
        with LocalRunner(target) as runner:
            requests = requests_of(partition, target, store, runner)
            sums = measured(compiled, runner, requests, options)
    calls = {task.key: count for task, count in partition.weights().items()}
    tasks_s = math.fsum(s * calls[key] for key, s in sums.alone().items())
    usual_s = math.fsum(s * calls[key] for key, s in sums.usually().items())
    print(
        f"{model}  {tasks_s * 1e3:.3f}  {sums.latency_s * 1e3:.3f}  {tasks_s / sums.latency_s:.3f}"
        f"  {usual_s / sums.median_latency_s:.3f}",
        flush=True,
    )
    for line in differing(partition, sums)[: options.kernels]:
        print(f"    {line}", flush=True)


def requests_of(
    partition: Partition, target: Target, store: TuningLog, runner: LocalRunner
) -> tuple[MeasureRequest, ...]:
    """What `tune` would ask for of these schedules."""
    here = dataclasses.replace(runner.profile(), target=target)
    defaults = weighty_defaults(partition, target, here)
    packed = packed_weights(partition, target, store, defaults)
    timing = dataclasses.replace(
        load_settings().timing,
        foreign_bytes=moved_bytes(partition, packed),
        apart_s=math.fsum(calls_s(partition, here)),
    )
    distances = all_reuse_distances((partition,), here, packed)
    return tuple(
        MeasureRequest(
            task=task,
            schedule=next(candidates(task, target, store, here, defaults.get(task))).schedule,
            target=target,
            timing=dataclasses.replace(timing, reuse_distances=distances[task.key]),
        )
        for task in partition.weights()
    )


def measured(
    compiled: CompiledModel,
    runner: LocalRunner,
    requests: tuple[MeasureRequest, ...],
    options: argparse.Namespace,
) -> Sums:
    """After a turn that builds everything and does not count."""
    benches, turns = [], []
    timed(runner, requests)
    for _ in range(options.turns):
        with quiet(options.threads):
            benches.append(compiled.bench(RUNS))
        turns.append(timed(runner, requests))
        with quiet(options.threads):
            benches.append(compiled.bench(RUNS))
    return Sums(benches, turns)


def timed(runner: LocalRunner, requests: tuple[MeasureRequest, ...]) -> dict[str, float]:
    results = dict(zip((r.task.key for r in requests), runner.measure(requests), strict=True))
    failed = next((r.error for r in results.values() if not r.times_s), "")
    if failed:
        raise AutotuneError(f"a kernel of the model could not be timed: {failed}")
    return {key: result.median_s for key, result in results.items()}


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """On the cores that candidates are timed on."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def differing(partition: Partition, sums: Sums) -> list[str]:
    """Tasks by how far their kernels in the model are from their time, the farthest first."""
    rows = zip(*([k.time_s for k in bench.kernels] for bench in sums.benches), strict=True)
    within: dict[str, float] = defaultdict(float)
    for kernel, times in zip(sums.benches[0].kernels, rows, strict=True):
        within[kernel.kernel.task_key] += min(times)
    alone, found = sums.alone(), []
    for task, calls in partition.weights().items():
        alone_s, within_s = alone[task.key] * calls, within[task.key]
        what = f"{calls} x {describe(task.to_json())}"
        text = f"{what}: {alone_s * 1e6:.1f} us alone, {within_s * 1e6:.1f} within"
        found.append((abs(alone_s - within_s), text))
    return [text for _, text in sorted(found, reverse=True)]


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
