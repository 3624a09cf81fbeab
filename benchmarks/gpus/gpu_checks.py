"""Whether kernels run right on the GPU that is here. In: a target. Out: lines and a verdict.

The first parts of `benchmarks/gpus/gpu.py`, which need nothing but the device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import onnx

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.types import LogStore
from autotune.errors import DeviceError
from autotune.frontend import load_model
from autotune.frontend.zoo.base import Network
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.measure.profile import profile_lines
from autotune.measure.runners import local
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import OPEN, Sandbox
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.params import Config
from search_spaces.rules import RULES, Rule, rule_for
from search_spaces.space import Configs

SIDE = 4096
"""Of the square matrices that the first figures are of."""
SAMPLES = 10
"""Configs per rule and task that are checked."""
LOOKED_AT = 50_000
"""Configs of a space that the prior chooses from."""
STARTS = 16
"""Of those, how many it looks around at."""
MODELS = ("zoo:resnet18", "zoo:bert_small", "zoo:mobilenetv2")
TIMING = Timing(min_repeats=20, max_repeats=60, budget_s=0.6)


BOUNDS = ("own_network", "drop_privileges", "filter_calls", "write_temporary_only")
AT_ONCE = 64
"""Configs that are measured before the clock is looked at."""


@contextlib.contextmanager
def reachable(target: Target) -> Iterator[None]:
    """Prints what the device measures of itself. Where its bounds keep a worker from the device:
    which one, and none while this lasts. Raises DeviceError where nothing helps."""
    sandbox = allowing(target)
    print("\n".join(profile_lines(profile_of(target, sandbox))), flush=True)
    with mock.patch.object(local, "Sandbox", return_value=sandbox):
        yield


def allowing(target: Target) -> Sandbox:
    """Bounds within which workers reach the device: the usual ones if they do."""
    try:
        profile_of(target, Sandbox())
        return Sandbox()
    except DeviceError as error:
        print(f"a worker does not reach the device: {error}", flush=True)
    for bound in BOUNDS:
        with contextlib.suppress(DeviceError):
            profile_of(target, dataclasses.replace(Sandbox(), **{bound: False}))
            print(f"it does without {bound}", flush=True)
    print("measured without bounds from here on", flush=True)
    return OPEN


def profile_of(target: Target, sandbox: Sandbox) -> DeviceProfile:
    with LocalRunner(target, sandbox=sandbox) as runner:
        return runner.profile()


def tasks_of(model: str, target: Target, log: LogStore | None = None) -> Mapping[Task, int]:
    """The kernels that a compilation of the model would have, and how often."""
    graph = prepare(load_model(model), target.precision, short=target.short_tensors).graph
    return arranged(graph, target, log).weights()


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
        (task,) = tasks_of(path, target)
    rule, right = rule_for(task, target), True
    with LocalRunner(target) as runner:
        for algorithm, config in defaults(rule, task, target).items():
            (result,) = runner.measure((request(rule, task, target, config, TIMING),))
            speed = f"{2e-12 * side**3 / result.median_s:.1f} TFLOP/s" if result.times_s else ""
            said = " ".join(filter(None, (speed, result.error, result.conditions)))
            print(f"{algorithm:8} {side}: {said}", flush=True)
            right &= result.status is Status.OK
        right &= checked(runner, samples=0)
    return goal("every algorithm's default runs", right)


def defaults(rule: Rule, task: Task, target: Target) -> dict[str, Config]:
    """The prior's best config of each algorithm: of many, and of what is better near the best."""
    space = rule.space(task, target)

    def cost(configs: Configs) -> Column:
        return rule.prior(task, Machine.of(target), configs).cycles

    rows = space.rows(LOOKED_AT, np.random.default_rng(0))
    configs = space.configs(rows)
    found: dict[str, Config] = {}
    for name in dict.fromkeys(configs["algorithm"].tolist()):

        def among(near: Configs, name: str = name) -> Column:
            return np.where(near["algorithm"] == name, cost(near), np.inf)

        starts = rows[np.argsort(among(configs), kind="stable")[:STARTS]]
        found[str(name)] = space.config(space.least(starts, among))
    return found


def correct(target: Target, left_s: float | None = None) -> bool:
    """Random configs of every rule for layers of networks, until time is up."""
    until_s = math.inf if left_s is None else time.monotonic() + left_s
    with LocalRunner(target) as runner:
        return checked(runner, samples=SAMPLES, until_s=until_s)


def checked(runner: LocalRunner, samples: int, until_s: float = math.inf) -> bool:
    """Defaults and samples of every rule, in both precisions, against the reference."""
    asked = [
        one for precision in ("float32", "bf16")
        for one in configs(runner.target.with_precision(precision), samples)
    ]  # fmt: skip
    order = np.random.default_rng(0).permutation(len(asked))
    wrong = count = 0
    for start in range(0, len(asked), AT_ONCE):
        if time.monotonic() > until_s:
            print(f"time is up: {len(asked) - count} configs are left", flush=True)
            break
        part = [asked[i] for i in order[start : start + AT_ONCE]]
        results = runner.measure(tuple(request for _, request in part))
        count += len(results)
        for (name, _), result in zip(part, results, strict=True):
            if result.status != Status.OK:
                wrong += 1
                print(f"{name}: {result.status}: {result.error}", flush=True)
    return goal(f"{count - wrong} of {count} configs are correct", wrong == 0)


def configs(target: Target, samples: int) -> list[tuple[str, MeasureRequest]]:
    """Of every rule, for every layer of the networks: the default and samples."""
    tasks: dict[Task, None] = {}
    for model in MODELS:
        tasks |= dict.fromkeys(tasks_of(model, target))
    once = Timing(min_repeats=1, max_repeats=1, budget_s=0.01)
    made = []
    for rule in RULES.parts():
        for task in (t for t in tasks if rule.matches(t, target)):
            space = rule.space(task, target)
            rows = space.sample(np.random.default_rng(0), samples) if samples else ()
            for config in (
                cost_model.default(task, Machine.of(target), rule),
                *map(space.config, rows),
            ):
                name = f"{rule.name} {target.precision} {task.key} {config}"
                made.append((name, request(rule, task, target, config, once)))
    return made


def request(
    rule: Rule, task: Task, target: Target, config: Config, timing: Timing
) -> MeasureRequest:
    schedule = rule.schedule(task, target, config)
    return MeasureRequest(task=task, schedule=schedule, target=target, timing=timing)
