"""Digests of all that is decided before a candidate is measured, to see what a change moves.

    python benchmarks/machines/digests.py MODEL ... > before.txt      # and again after the change
    diff before.txt after.txt

In: models beside the zoo's and the contract suites' tasks. Out: a line per target and task, with
digests of its space (choices of the params, which of sampled configs are valid), of the default
config, of the programs of the default and of a random config, of their generated texts, and of the
order in which the prior puts sampled configs. Names of params and steps are not part of any. The
devices' speeds are fixed, so that the same code gives the same lines on every machine.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cost_model
from autotune.codegen import backend_for
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.frontend.zoo import ZOO
from autotune.machine import Machine
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.executor import kernel_symbol
from autotune.program.text import print_program
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.base import Rule, rule_for
from search_spaces.params import Config

TARGETS = ("x86-64-v4", "x86-64-v3", "cortex-a72", "c", "opencl", "sm_80", "sm_90a")
SAMPLED = 64


def profile_of(target: Target) -> DeviceProfile:
    """A device as fast as nothing in particular."""
    levels = (
        CacheLevel(name="L1", size_bytes=target.l1_bytes, load_bytes_per_s=2e11),
        CacheLevel(name="L2", size_bytes=target.l2_bytes, load_bytes_per_s=1e11),
        CacheLevel(name="L3", size_bytes=32 << 20, load_bytes_per_s=4e10),
        CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=1e10),
    )
    return DeviceProfile(
        device="fixed", target=target, peak_flops=1e11, levels=levels, parallel_region_s=1e-6
    )


def short(*parts: object) -> str:
    """The first digits of a digest of the parts' texts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:10]


def line(source: str, task: Task, target: Target) -> str:
    """The digests of one task, or the error that ends in none."""
    rule = rule_for(task, target)
    space = rule.space(task, target)
    rng = np.random.default_rng(0)
    raw = rng.integers(0, [len(p.choices) for p in space.params], (SAMPLED, len(space.params)))
    rows = space.sample(rng, SAMPLED)
    default = cost_model.default(task, Machine.of(target), rule)
    machine = Machine.of(target, profile_of(target))
    predicted = cost_model.predict(task, machine, space.configs(rows), rule).seconds
    order = np.argsort(np.round(np.log2(predicted), 6), kind="stable")
    made = [_made(rule, task, target, c) for c in (default, space.config(rows[-1]))]
    return " ".join([
        target.name, source, task.key, rule.name,
        short([p.choices for p in space.params], space.valid(raw).tolist(), rows.tolist()),
        short([value for _, value in default.items]),
        *(program for program, _ in made),
        *(text for _, text in made),
        short(order.tolist()),
    ])  # fmt: skip


def _made(rule: Rule, task: Task, target: Target, config: Config) -> tuple[str, str]:
    try:
        program = apply_schedule(build_program(task), rule.schedule(task, target, config))
    except AutotuneError as error:
        return short(error), "-"
    text = print_program(program)
    try:
        source = backend_for(target).source(program, target, kernel_symbol(task))
    except AutotuneError as error:
        source = str(error)
    return short(text), short(source)


def tasks_of(model: str, target: Target) -> Iterator[tuple[str, Task]]:
    """The unique tasks of a model as it is compiled for the target without a log."""
    prepared = prepare(load_model(model), target.precision, None, short=target.short_tensors)
    for task in arranged(prepared.graph, target).weights():
        yield Path(model).stem, task


def contract_tasks() -> Iterator[tuple[str, Task]]:
    """Those of the rules' contract suites."""
    from tests.contracts import test_gpu_rules, test_rules

    for name, task in (test_rules.CPU_TASKS | test_gpu_rules.CASES).items():
        yield name.replace(" ", "-"), task


def lines_of(name: str, models: Iterable[str]) -> list[str]:
    """Every line of a target, sorted."""
    target = load_target(name)
    named = [*contract_tasks(), *(pair for model in models for pair in tasks_of(model, target))]
    unique = {task: source for source, task in reversed(named)}
    return sorted(line(source, task, target) for task, source in unique.items())


def main() -> int:
    """Print the digests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="models beside those of the zoo")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    models = [*args.models, *(f"zoo:{name}" for name in ZOO)]
    wanted = args.target or TARGETS
    with ProcessPoolExecutor(args.processes) as pool:
        for lines in pool.map(lines_of, wanted, [models] * len(wanted)):
            print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
