"""Kernels of real networks, one by one, against the machine's limits.

In: models, and a tuning log if there is one. Out: two tables with a row per task, with the best
logged schedule or the default one: convolutions and matrix products, with their share of the
measured multiply-add peak (above 100 % where an algorithm does fewer operations), or, if that
would take longer, of reading their operands once at the measured bandwidth of the smallest cache
that holds them; and everything else, with its share of the measured copy bandwidth of the smallest
cache that holds its data, and of the limit that its arithmetic sets. Fastest runs count, of rounds
over all kernels, so that other work on the machine does not. What the multiply-adds limit should
reach 95 %, everything else 85 %. With --drawn, light kernels that do not are also timed with
configs drawn evenly from their spaces; the best is what the generator can do for them.

That limit: vector instructions that the operator's definition asks for, at the measured rate of
multiply-adds. Additions, maxima and minima count apart from the rest, as machines have units of
their own for them, and the larger count is the limit. A product that is added on is one multiply-
add; a reduction joins all elements but the first; EXTRA has functions of several instructions. So
a 3x3 pool takes 8 an element, a depthwise 3x3 convolution 9. Loads, stores, masks, compares and
integer arithmetic count for nothing, and divisions and roots, which take many cycles, for one.

Usage: python benchmarks/machines/single_op.py zoo:resnet18 net.onnx [--log tuning.db]
    [--accuracy strict]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from autotune.compiler.choose import Candidate, candidates
from autotune.compiler.driver import open_log
from autotune.compiler.layout_costs import arranged
from autotune.compiler.work import work_of
from autotune.db.types import LogStore
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.program.ir import Apply, Select, Value
from autotune.program.rewrite import value_loads
from autotune.schedule import Schedule
from autotune.target import Target, load_target
from autotune.tasks.build import node_computes
from autotune.tasks.describe import describe
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.rules import rule_for

TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.2)
GOOD = 0.85
"""Of its limit, for a light kernel."""
EXTRA = {"exp": 8, "log": 14, "sigmoid": 10, "tanh": 13, "erf": 16, "rsqrt": 4}
"""Instructions beyond the first of functions that are code: the polynomials' multiply-adds and the
reduction of their argument; of rsqrt, an estimate and its refinement."""
ADDERS = ("add", "sub", "max", "min")
Row = tuple[Task, Candidate, MeasureResult]


def unique_tasks(models: Iterable[str], target: Target, log: LogStore | None = None) -> list[Task]:
    """Unique tasks in order of first use, in the layouts that a compilation chooses."""
    found: dict[Task, None] = {}
    for model in models:
        parts = arranged(optimize(load_model(model)), target, log)
        found |= dict.fromkeys(parts.weights())
    return list(found)


def is_heavy(task: Task) -> bool:
    """A contraction that does many operations with each number it loads."""
    weights = task.value(task.nodes[task.anchor].inputs[-1]).type.shape
    return task.op == "matmul" or (task.op == "conv2d" and weights[2] > 1)


def nbytes(task: Task) -> int:
    """Bytes read and written, each once."""
    work = work_of(task, (), ())
    return work.input_bytes + work.weight_bytes + work.output_bytes


def copy_limit(task: Task, profile: DeviceProfile, target: Target) -> tuple[str, float]:
    """(level, seconds) of moving the task's bytes at copy bandwidth: half loaded, half stored."""
    moved = nbytes(task)
    levels = [v for v in profile.levels if not v.size_bytes or moved <= 0.75 * v.size_bytes]
    return levels[0].name, moved / 2 / levels[0].copy_bytes_per_s / target.threads


def arithmetic_limit(task: Task, profile: DeviceProfile, target: Target) -> float:
    """Seconds of the task's vector instructions, as the module counts them."""
    each_s = 2 * target.lanes() / profile.peak_flops
    return instructions(task) / target.lanes() * each_s / target.threads


def instructions(task: Task) -> int:
    """Instructions of all elements on the busier kind of unit, as if each were a vector's lane."""
    total = {True: 0, False: 0}
    for node in task.nodes:
        for compute in node_computes(task, node):
            results = math.prod(a.extent for a in compute.axes)
            points = results * math.prod(a.extent for a in compute.reduce)
            found = frozenset(_applied(compute.body))
            fused = {a for v in found if v.fn in ADDERS for a in v.args if _is_product(a)}
            fused |= {v for v in found if v.fn in ADDERS and not fused.isdisjoint(v.args)}
            for value in found:
                apart = value.fn in ADDERS and value not in fused
                once = value.fn == "mul" and value in fused
                total[apart] += 0 if once else points * (1 + EXTRA.get(value.fn, 0))
            if compute.combine and not (compute.combine == "sum" and _is_product(compute.body)):
                total[True] += points - results
    return max(total.values())


def _applied(value: Value) -> Iterator[Apply]:
    """Functions of what is loaded; those of indices alone are the same for a whole vector."""
    parts = (value.then, value.other) if isinstance(value, Select) else ()
    if isinstance(value, Apply):
        parts = value.args
        if any(True for _ in value_loads(value)):
            yield value
    for part in parts:
        yield from _applied(part)


def _is_product(value: Value) -> bool:
    value = value.then if isinstance(value, Select) else value
    return isinstance(value, Apply) and value.fn == "mul"


def read_limit(task: Task, profile: DeviceProfile, target: Target) -> tuple[str, float]:
    """(level, seconds) of reading the task's operands once."""
    work = work_of(task, (), ())
    read = work.input_bytes + work.weight_bytes
    levels = [v for v in profile.levels if not v.size_bytes or read <= 0.75 * v.size_bytes]
    return levels[0].name, read / levels[0].load_bytes_per_s / target.threads


def print_heavy(rows: Sequence[Row], profile: DeviceProfile, target: Target) -> None:
    good, lowest = 0, math.inf
    for task, choice, result in rows:
        seconds, flops = min(result.times_s), task_flops(task)
        compute_s = flops / profile.peak_flops / target.threads
        level, read_s = read_limit(task, profile, target)
        limit, least = ("peak", 0.95) if compute_s >= read_s else (f"reading {level}", 0.85)
        share = max(compute_s, read_s) / seconds
        good, lowest = good + (share >= least), min(lowest, share)
        algorithm = work_of(task, choice.schedule, ()).algorithm
        print(
            f"{describe(task)[:72]:72} {algorithm:9} {seconds * 1e6:9.1f} us "
            f"{flops / seconds / 1e9:7.1f} GFLOP/s {share:6.1%} of {limit}"
        )
    if rows:
        print(
            f"{good} of {len(rows)} at 95 % of the peak or 85 % of reading; lowest {lowest:.1%}\n"
        )


def light_limit(task: Task, profile: DeviceProfile, target: Target) -> float:
    """Seconds of moving its bytes, or of its arithmetic."""
    copy_s = copy_limit(task, profile, target)[1]
    return max(copy_s, arithmetic_limit(task, profile, target))


def print_light(rows: Sequence[Row], profile: DeviceProfile, target: Target) -> None:
    good = 0
    for task, _, result in rows:
        seconds, moved = min(result.times_s), nbytes(task)
        level, copy_s = copy_limit(task, profile, target)
        limit_s = light_limit(task, profile, target)
        good += limit_s / seconds >= GOOD
        print(
            f"{describe(task)[:72]:72} {seconds * 1e6:9.1f} us {moved / seconds / 1e9:6.1f} GB/s "
            f"{level:6} {copy_s / seconds:6.1%} of copying {limit_s / seconds:6.1%} of the limit"
        )
    print(f"{good} of {len(rows)} at 85 % of copying, or of their arithmetic, or more")


def fastest(
    requests: Sequence[MeasureRequest], runner: LocalRunner, rounds: int
) -> list[MeasureResult]:
    """The result of each with the fastest run of all rounds; a failure where one failed."""
    found = zip(*(runner.measure((*requests,)) for _ in range(rounds)), strict=True)
    return [
        min(same, key=lambda r: (r.status == Status.OK, min(r.times_s, default=math.inf)))
        for same in found
    ]


def print_drawn(
    rows: Sequence[Row], runner: LocalRunner, target: Target, options: Options
) -> None:
    """The best of configs drawn from the spaces of light kernels short of their limit."""
    profile, rng = runner.profile(), np.random.default_rng(0)
    for task, choice, result in rows:
        limit_s, seconds = light_limit(task, profile, target), min(result.times_s)
        if limit_s / seconds >= GOOD:
            continue
        rule = rule_for(task, target)
        space = rule.space(task, target)
        configs = [space.config(row) for row in space.sample(rng, options.drawn)]
        schedules = [choice.schedule, *(rule.schedule(task, target, c) for c in configs)]
        requests = [request(task, schedule, target) for schedule in schedules]
        times_s = [
            min(r.times_s) if r.status == Status.OK else math.inf
            for r in fastest(requests, runner, options.rounds)
        ]
        best = int(np.argmin(times_s))
        values = " ".join(f"{k}={v}" for k, v in configs[best - 1].items) if best else "its own"
        print(
            f"{describe(task)[:72]:72} {limit_s / times_s[0]:6.1%}, at best "
            f"{limit_s / times_s[best]:6.1%} of the limit: {values}"
        )


def request(task: Task, schedule: Schedule, target: Target) -> MeasureRequest:
    return MeasureRequest(task=task, schedule=schedule, target=target, timing=TIMING)


class Options(argparse.Namespace):
    rounds: int
    drawn: int


def options_of() -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or an .onnx file")
    parser.add_argument("--log", help="tuning log; without one, default schedules")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--accuracy", choices=("normal", "strict"), default="normal")
    parser.add_argument("--min-mflop", type=float, default=100.0, help="of contractions")
    parser.add_argument("--min-kib", type=float, default=256.0, help="moved, of everything else")
    parser.add_argument("--only", choices=("heavy", "light"), help="one of the tables")
    parser.add_argument("--rounds", type=int, default=3, help="over all kernels")
    parser.add_argument("--drawn", type=int, default=0, help="configs of light ones short of it")
    return parser.parse_args(namespace=Options())


def main() -> None:
    options = options_of()
    target = load_target("cpu", options.threads).with_accuracy(options.accuracy)
    with open_log(options.log) as log:
        found = unique_tasks(options.models, target, log)
    heavy = [t for t in found if is_heavy(t) and task_flops(t) >= options.min_mflop * 1e6]
    light = [t for t in found if not is_heavy(t) and nbytes(t) >= options.min_kib * 1024]
    tasks = {"heavy": heavy, "light": light}.get(options.only, [*heavy, *light])
    with open_log(options.log) as log, LocalRunner(target) as runner:
        chosen = [next(candidates(task, target, log)) for task in tasks]
        profile = runner.profile()
        requests = [
            request(task, choice.schedule, target)
            for task, choice in zip(tasks, chosen, strict=True)
        ]
        results = fastest(requests, runner, options.rounds)
        rows = list(zip(tasks, chosen, results, strict=True))
        if options.drawn:
            sound = [r for r in rows if r[2].status == Status.OK and not is_heavy(r[0])]
            print_drawn(sound, runner, target, options)
    for task, _, result in rows:
        if result.status != Status.OK:
            print(f"{describe(task):72} {result.status}: {result.error}")
    rows = [row for row in rows if row[2].status == Status.OK]
    peak = profile.peak_flops * target.threads
    print(f"measured multiply-add peak: {peak / 1e9:.1f} GFLOP/s on {target.threads} thread(s)")
    speeds = (f"{v.name} {v.load_bytes_per_s / 1e9:.1f} GB/s" for v in profile.levels)
    print(f"measured read bandwidth: {', '.join(speeds)}")
    print_heavy([row for row in rows if is_heavy(row[0])], profile, target)
    speeds = (f"{v.name} {v.copy_bytes_per_s / 1e9:.1f} GB/s" for v in profile.levels)
    print(f"measured copy bandwidth: {', '.join(speeds)}")
    print_light([row for row in rows if not is_heavy(row[0])], profile, target)


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
