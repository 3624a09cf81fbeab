"""Whether kernels run right on the GPU that is here. In: a target. Out: lines and a verdict.

The first parts of `benchmarks/gpu.py`, which need nothing but the device.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from autotune.frontend import load_model
from autotune.frontend.zoo.base import Network
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule, rule_for

SIDE = 4096
"""Of the square matrices that the first figures are of."""
SAMPLES = 10
"""Configs per rule and task that are checked."""
LOOKED_AT = 50_000
"""Configs of a space that the prior chooses from."""
MODELS = ("zoo:resnet18", "zoo:bert_small", "zoo:mobilenetv2")
TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.6)


def saved(net: Network, value: str, shape: Sequence[int], folder: str) -> str:
    path = Path(folder) / f"{net.name}.onnx"
    onnx.save(net.finish({"y": (value, shape)}), path)
    return str(path)


def goal(text: str, met: bool) -> bool:
    print(f"{'met' if met else 'MISSED'}: {text}\n", flush=True)
    return met


def first(target: Target) -> bool:
    """Whether everything runs, and how fast each algorithm's default is, before any tuning."""
    net, side = Network("first"), SIDE
    x, w = net.input("x", np.float32, (side, side)), net.weights((side, side), fan_in=side)
    target = target.with_precision("bf16")
    with tempfile.TemporaryDirectory() as folder:
        path = saved(net, net.op("MatMul", x, w), (side, side), folder)
        (task,) = partition(optimize(load_model(path)), attention=False).weights()
    rule = rule_for(task, target)
    with LocalRunner(target) as runner:
        right = checked(runner, samples=0)
        for algorithm, config in defaults(rule, task, target).items():
            (result,) = runner.measure((request(rule, task, target, config, TIMING),))
            speed = f"{2e-12 * side**3 / result.median_s:.1f} TFLOP/s" if result.times_s else ""
            said = " ".join(filter(None, (speed, result.error, result.conditions)))
            print(f"{algorithm:8} {side}: {said}", flush=True)
            right &= result.status is Status.OK
    return goal("every algorithm's default runs", right)


def defaults(rule: Rule, task: Task, target: Target) -> dict[str, Config]:
    """The prior's best config of each algorithm."""
    space = rule.space(task, target)
    rows = space.rows(LOOKED_AT, np.random.default_rng(0))
    columns = space.columns(rows)
    expected = rule.structure(task, target, columns).extra["expected"]
    order = [space.config(rows[i]) for i in np.argsort(-expected)]
    return {str(config["algorithm"]): config for config in order}


def correct(target: Target) -> bool:
    """Random configs of every rule for layers of networks."""
    with LocalRunner(target) as runner:
        return checked(runner, samples=SAMPLES)


def checked(runner: LocalRunner, samples: int) -> bool:
    """Defaults and samples of every rule, in both precisions, against the reference."""
    tasks: dict[Task, None] = {}
    for model in MODELS:
        tasks |= dict.fromkeys(partition(optimize(load_model(model)), attention=False).weights())
    once = Timing(min_repeats=1, max_repeats=1, budget_s=0.01)
    wrong = count = 0
    for precision in ("float32", "bf16"):
        wanted = runner.target.with_precision(precision)
        made: list[tuple[str, MeasureRequest]] = []
        for rule in RULES.parts():
            for task in (t for t in tasks if rule.matches(t, wanted)):
                space = rule.space(task, wanted)
                rows = space.sample(np.random.default_rng(0), samples) if samples else ()
                for config in (rule.default(task, wanted), *map(space.config, rows)):
                    asked = request(rule, task, wanted, config, once)
                    made.append((f"{rule.name} {task.key} {config}", asked))
        results = runner.measure(tuple(asked for _, asked in made))
        count += len(results)
        for (name, _), result in zip(made, results, strict=True):
            if result.status != Status.OK:
                wrong += 1
                print(f"{name}: {result.status}: {result.error}", flush=True)
    return goal(f"{count - wrong} of {count} configs are correct", wrong == 0)


def request(
    rule: Rule, task: Task, target: Target, config: Config, timing: Timing
) -> MeasureRequest:
    schedule = rule.schedule(task, target, config)
    return MeasureRequest(task=task, schedule=schedule, target=target, timing=timing)
