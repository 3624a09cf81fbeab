"""What `--accuracy reproducible` promises, and what it costs.

    python benchmarks/correctness/reproducible.py pairs --count 10000
    python benchmarks/correctness/reproducible.py models MODEL.onnx ... --logs 3
    python benchmarks/correctness/reproducible.py cost MODEL.onnx ...

`pairs`: random configs of the contract suites' tasks, for AVX2 and AVX-512 on one thread and two;
each task has one result, bit for bit, or its name is told. `models`: whole models for the same
targets, without a log and by logs of random configs with random times, so that layouts follow
them. `cost`: seconds of a model compiled so, over the same with accuracy strict and normal, in
turns.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.compiler.driver import Preparation, compile_graph, load_prepared
from autotune.compiler.this_machine import runs_here
from autotune.db.types import Record
from autotune.errors import ScheduleError
from autotune.frontend import load_model
from autotune.graph.feeds import random_feeds
from autotune.graph.ir import Graph
from autotune.measure.types import MeasureResult, Status
from autotune.placement.layout_problem import problem_of
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.rules import rule_for

TURNS = 15
"""Of whole runs, when costs are timed (chosen)."""


class RandomLog:
    """A tuning log in which every task of a model, in every layout, has a random config that took
    a random time."""

    def __init__(self, tasks: Iterable[Task], target: Target, rng: np.random.Generator) -> None:
        found = (_record(task, target, rng) for task in tasks)
        self._records = {record.task.key: record for record in found if record is not None}

    def best(self, task_key: str, _: Target) -> Record | None:
        return self._records.get(task_key)

    def nearest(self, *_: object, **__: object) -> Sequence[Record]:
        return ()


def _record(task: Task, target: Target, rng: np.random.Generator) -> Record | None:
    """A sampled config as if it had been measured; None where it cannot be scheduled."""
    rule = rule_for(task, target)
    space = rule.space(task, target)
    config = space.config(space.sample(rng, 1)[0])
    try:
        schedule = rule.schedule(task, target, config)
        apply_schedule(build_program(task), schedule)
    except ScheduleError:
        return None
    time_s = float(rng.uniform(1e-5, 1e-3))
    return Record(
        task=task, target=target, rule=rule.name, config=config, schedule=schedule,
        result=MeasureResult(status=Status.OK, times_s=(time_s,)),
    )  # fmt: skip


def targets() -> list[Target]:
    """Those that this machine runs."""
    named = itertools.product(("x86-64-v3", "x86-64-v4"), (1, 2))
    made = (load_target(name, threads).with_accuracy("reproducible") for name, threads in named)
    return [target for target in made if runs_here(target)]


def variants(
    graph: Graph, model: str | bytes, logs: int, seed: int
) -> Iterator[tuple[str, CompiledModel]]:
    """The model as every target and log has it."""
    for target in targets():
        request = CompileRequest(model=model, target=target)
        tasks = problem_of(load_prepared(request, target).graph, target).tasks()
        for number in range(logs + 1):
            rng = np.random.default_rng([seed, number])
            log: Any = RandomLog(tasks, target, rng) if number else None
            label = f"{target.name} on {target.threads}, " + (f"log {number}" if log else "no log")
            yield label, compile_graph(graph, target, log, Preparation.of(request))


def digest(outputs: Mapping[str, Any]) -> str:
    """Of the bits of a run's results."""
    whole = b"".join(np.ascontiguousarray(array).tobytes() for array in outputs.values())
    return hashlib.sha256(whole).hexdigest()[:16]


def model_digests(model: str | bytes, logs: int, seed: int = 0) -> dict[str, str]:
    """By target and log, the digest of the results of one input."""
    graph = load_model(model)
    found = {}
    for label, made in variants(graph, model, logs, seed):
        with made:
            found[label] = digest(made.run(random_feeds(made.inputs, seed)))
    return found


def check_models(options: argparse.Namespace) -> int:
    failed = 0
    for path in options.models:
        found = model_digests(path, options.logs)
        same = len(set(found.values())) == 1
        failed += not same
        print(f"{path}: {len(found)} compiles, {'the same bits' if same else found}", flush=True)
    return failed


def check_pairs(options: argparse.Namespace) -> int:
    """Random (task, config, threads) of the contract suites' tasks."""
    from tests.contracts.test_reproducible import ATTENTION
    from tests.contracts.test_rules import CPU_TASKS, arrays_of
    from tests.unit.codegen.kernels import run_kernel

    names = sorted(CPU_TASKS.keys() - {ATTENTION})
    arrays = {name: arrays_of(CPU_TASKS[name])[0] for name in names}
    bits: dict[str, bytes] = {}
    wrong: set[str] = set()
    places, begun, done = targets(), time.monotonic(), 0
    for number in range(options.count):
        if time.monotonic() - begun > options.time_s:
            break
        rng = np.random.default_rng([options.seed, number])
        name, target = names[number % len(names)], places[rng.integers(len(places))]
        task = CPU_TASKS[name]
        rule = rule_for(task, target)
        space = rule.space(task, target)
        config = space.config(space.sample(rng, 1)[0])
        schedule = rule.schedule(task, target, config)
        program = apply_schedule(build_program(task), schedule)
        out = np.ascontiguousarray(run_kernel(task, program, target, arrays[name])).tobytes()
        if bits.setdefault(name, out) != out:
            wrong.add(f"{name}: {target.key}: {config}")
        done += 1
    print(f"{done} pairs of {len(bits)} tasks on {len(places)} targets, {len(wrong)} differ")
    for line in sorted(wrong):
        print(line)
    return len(wrong)


def show_costs(options: argparse.Namespace) -> int:
    print("| model | normal, ms | strict, ms | reproducible, ms | over strict | over normal |")
    print("| --- " * 6 + "|")
    for path in options.models:
        runs: list[Callable[[], object]] = []
        for accuracy in ("normal", "strict", "reproducible"):
            made = autotune.compile(path, threads=options.threads, accuracy=accuracy)
            feeds = random_feeds(made.inputs, 0)
            runs.append(lambda made=made, feeds=feeds: made.run(feeds))  # type: ignore[misc]
        seconds: list[list[float]] = [[] for _ in runs]
        for _, (run, row) in itertools.product(range(TURNS), zip(runs, seconds, strict=True)):
            start = time.perf_counter()
            run()
            row.append(time.perf_counter() - start)
        normal, strict, ours = (statistics.median(row[2:]) * 1e3 for row in seconds)
        cells = (Path(path).stem, f"{normal:.2f}", f"{strict:.2f}", f"{ours:.2f}",
                 f"{ours / strict:.3f}", f"{ours / normal:.3f}")  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    pairs = commands.add_parser("pairs")
    pairs.add_argument("--count", type=int, default=10_000)
    pairs.add_argument("--time-s", type=float, default=float("inf"))
    pairs.add_argument("--seed", type=int, default=0)
    pairs.set_defaults(run=check_pairs)
    models = commands.add_parser("models")
    models.add_argument("models", nargs="+")
    models.add_argument("--logs", type=int, default=2)
    models.set_defaults(run=check_models)
    cost = commands.add_parser("cost")
    cost.add_argument("models", nargs="+")
    cost.add_argument("--threads", type=int, default=1)
    cost.set_defaults(run=show_costs)
    options = parser.parse_args()
    return int(options.run(options) > 0)


if __name__ == "__main__":
    sys.exit(main())
