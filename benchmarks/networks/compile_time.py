"""How long compiling takes: the whole call, from the model file to a model that is ready to run.

In: a model, and a tuning log with records of its tasks; without one, a temporary log is filled
with a record per task (its default schedule, never measured): the same path. Out: seconds.

Usage: python benchmarks/networks/compile_time.py zoo:resnet18 [--log tuning.db] [--repeats 3]
"""

from __future__ import annotations

import argparse
import collections
import statistics
import tempfile
import time
from pathlib import Path

import autotune
import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.db.types import Record
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.target import Target, load_target
from autotune.types import Task
from search_spaces.rules import rule_for


def default_record(task: Task, target: Target) -> Record:
    """A record of the task's default schedule, of no measurement."""
    rule = rule_for(task, target)
    config = cost_model.default(task, Machine.of(target), rule)
    return Record(
        task=task,
        target=target,
        rule=rule.name,
        config=config,
        schedule=rule.schedule(task, target, config),
        result=MeasureResult(status=Status.OK, times_s=(1.0,), device="none"),
    )


def fill(log: Path, model: str, target: Target) -> None:
    """Write a record of every task of the model."""
    tasks = arranged(optimize(load_model(model)), target).weights()
    with autotune.TuningLog(log) as store:
        store.append([default_record(task, target) for task in tasks])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="zoo:NAME or an .onnx file")
    parser.add_argument("--log", type=Path, help="tuning log; without one, see above")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    target = load_target("cpu", options.threads)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "tuning.db"
        if options.log is None:
            fill(log, options.model, target)
        spent = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            model = autotune.compile(options.model, target=target, log=log)
            spent.append(time.perf_counter() - start)
    kernels = model.image.kernels
    sources = collections.Counter(kernel.source for kernel in kernels)
    chosen = ", ".join(f"{count} {source}" for source, count in sorted(sources.items()))
    unique = len({kernel.symbol for kernel in kernels})
    print(
        f"{options.model}: {statistics.median(spent):.2f} s (median of {len(spent)}; "
        f"{min(spent):.2f} to {max(spent):.2f}); {len(kernels)} kernels, {unique} built ({chosen})"
    )


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
