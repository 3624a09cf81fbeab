"""How long candidates take to build, over the tasks of real networks.

In: models. Out: processor time of building random configs of every rule (from task and schedule to
object code): median, percentiles and the slowest, per rule and over all.

Usage: python benchmarks/search/build_time.py zoo:resnet18 net.onnx [--samples 300] [--threads 1]
"""

from __future__ import annotations

import argparse
import collections
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.errors import AutotuneError, BuildError, ScheduleError
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.build_task import build_task
from autotune.target import Target, load_target
from autotune.tasks.describe import describe
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for

SLOW_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One candidate; `seconds` of processor time, `schedule_s` of which were the schedule's."""

    rule: str
    task: Task
    config: Config
    seconds: float
    schedule_s: float
    error: str


def tasks_of(models: Iterable[str], target: Target) -> list[Task]:
    """Unique tasks in order of first use."""
    found: dict[Task, None] = {}
    for model in models:
        found |= dict.fromkeys(arranged(optimize(load_model(model)), target).weights())
    return list(found)


def sampled(
    tasks: list[Task], target: Target, samples: int, rng: np.random.Generator
) -> Iterator[Built]:
    """Random configs of random tasks, as many of every rule."""
    by_rule: dict[str, list[Task]] = collections.defaultdict(list)
    for task in tasks:
        by_rule[rule_for(task, target).name].append(task)
    for name, ours in by_rule.items():
        for _ in range(samples):
            task = ours[int(rng.integers(len(ours)))]
            rule = rule_for(task, target)
            space = rule.space(task, target)
            yield build(name, task, target, space.config(space.sample(rng, 1)[0]))


def build(rule: str, task: Task, target: Target, config: Config) -> Built:
    """Build one candidate."""
    start, error, between = time.process_time(), "", 0.0
    try:
        schedule = rule_for(task, target).schedule(task, target, config)
        between = time.process_time()
        build_task(task, schedule, target)
    except (ScheduleError, BuildError) as failure:
        error = str(failure)
    end = time.process_time()
    return Built(
        rule=rule, task=task, config=config, seconds=end - start,
        schedule_s=max(0.0, between - start), error=error,
    )  # fmt: skip


def line(name: str, rows: list[Built]) -> str:
    spent = np.array([row.seconds for row in rows]) * 1e3
    median, high, most = np.percentile(spent, (50, 99, 100))
    slow = int((spent > SLOW_S * 1e3).sum())
    schedule = float(np.median([row.schedule_s for row in rows])) * 1e3
    return (
        f"{name:12} {len(rows):5} built, median {median:6.1f} ms (schedule {schedule:.1f}), 99 % "
        f"{high:6.1f}, slowest {most:6.1f} ms, {slow} above {SLOW_S * 1e3:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or an .onnx file")
    parser.add_argument("--samples", type=int, default=300, help="per rule")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=8, help="of the slowest")
    options = parser.parse_args()
    target = load_target("cpu", options.threads).with_precision(options.precision)
    tasks = tasks_of(options.models, target)
    build("", tasks[0], target, cost_model.default(tasks[0], Machine.of(target)))  # warm
    rows = list(sampled(tasks, target, options.samples, np.random.default_rng(options.seed)))
    for name in dict.fromkeys(row.rule for row in rows):
        print(line(name, [row for row in rows if row.rule == name]))
    print(line("all", rows))
    for row in sorted(rows, key=lambda row: -row.seconds)[: options.show]:
        params = " ".join(f"{k}={v}" for k, v in row.config.items)
        print(f"{row.seconds * 1e3:7.1f} ms  {describe(row.task)[:80]}  {params}")
    for row in rows:
        if row.error:
            print(f"failed: {describe(row.task)}: {row.error}")


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
