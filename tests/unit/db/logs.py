"""A small real log for tests: of a model's tasks, as tuning leaves it."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db import latencies, rankings
from autotune.db.profiles import keep_profile
from autotune.db.store import TuningLog
from autotune.db.types import Latency, Mark, Record
from autotune.frontend import load_model
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureResult, Status
from autotune.target import Target, load_target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.rules import rule_for


def model_records(model: str = "zoo:tiny", each: int = 3, seed: int = 0) -> list[Record]:
    """Of every task of the model here: `each` that worked, one that did not."""
    target = load_target("cpu")
    draw = random.Random(seed)
    graph = prepare(load_model(model), target.precision, short=target.short_tensors).graph
    found = []
    for task in arranged(graph, target, None).weights():
        for number in range(each + 1):
            found.append(_record(task, target, draw, ok=number < each, number=number))
    return found


def _record(task: Task, target: Target, draw: random.Random, *, ok: bool, number: int) -> Record:
    rule = rule_for(task, target)
    config = cost_model.default(task, Machine.of(target), rule)
    times = tuple(draw.uniform(1e-5, 1e-3) for _ in range(4)) if ok else ()
    result = MeasureResult(
        status=Status.OK if ok else Status.RUN_CRASH,
        times_s=times,
        error="" if ok else "signal 11",
        calibration_s=1e-4,
        build_s=0.1,
        run_s=0.2,
        device="board-7",
        max_error=1e-7,
    )
    return Record(
        task=task, target=target, rule=rule.name, config=config,
        schedule=rule.schedule(task, target, config), result=result, seed=number,
        flops=task_flops(task), model="tiny", versions=(("autotune", "0.1.0"),),
        created=f"2026-01-02T03:04:{number:02d}+00:00",
    )  # fmt: skip


def write_log(path: Path, records: list[Record], profile: DeviceProfile | None = None) -> None:
    """The records, some imported, with all that a run keeps beside them. One file, no -wal."""
    target = records[0].target
    with TuningLog(path) as log:
        for record in records:
            log.append([record])
        other = dataclasses.replace(records[0], mark=Mark.IMPORTED, origin="other.db")
        log.append([other])
        log.repeat([records[1]])
        if profile is not None:
            keep_profile(log, profile)
        key = records[0].task.key
        rankings.keep(log, [rankings.KeptRanking(
            task_key=key, target_key=target.key, model="tiny", round=1, samples=8,
            rank_correlation=0.5, top_recall=0.25, regret=0.1,
        )])  # fmt: skip
        latencies.keep(log, Latency(
            model_key="tiny", model="tiny", target_key=target.key, device="board-7",
            before=(1e-3,), after=(5e-4,), kernels_before_s=1e-3, kernels_after_s=5e-4,
        ))  # fmt: skip
