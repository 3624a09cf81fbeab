"""Kernels of models for Arm, run once by qemu-user and checked against their references.

    python benchmarks/machines/qemu_kernels.py resnet50.onnx minilm.onnx [--target neoverse-n1]

In: models and names of targets. Out: a row per model and target with how many kernels, by default
schedules as a compiled model has them, are right, and a line for each that is not. Needs what
tests need for it: qemu-user, and Debian's cross compiler for aarch64.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cost_model
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.machine import Machine
from autotune.measure.execute import build, judge, make_case
from autotune.measure.types import MeasureRequest
from autotune.target import Target, load_target
from autotune.types import Task
from benchmarks.mca import TARGETS
from search_spaces.base import rule_for
from tests.unit.rpc_server.emulated import run_emulated

SEED = 5


def error_of(task: Task, target: Target) -> str:
    """What is wrong with a kernel's results; empty if nothing is."""
    rule = rule_for(task, target)
    config = cost_model.default(task, Machine.of(target), rule)
    schedule = rule.schedule(task, target, config)
    request = MeasureRequest(task=task, schedule=schedule, target=target, seed=SEED)
    case = make_case(task, SEED)
    with tempfile.TemporaryDirectory() as folder:
        run_emulated(request, build(request), case, Path(folder))
    return judge(case).error


def rows_of(model: str, target: Target) -> Iterator[str]:
    """Lines for kernels that are wrong, and the model's row."""
    prepared = prepare(load_model(model), target.precision, None, short=target.short_tensors)
    tasks = list(arranged(prepared.graph, target).weights())
    errors = {task: error for task in tasks if (error := error_of(task, target))}
    for task, error in errors.items():
        yield f"{task.key}: {error}"
    right = len(tasks) - len(errors)
    yield f"| {Path(model).stem} | {target.name} | {right} of {len(tasks)} right |"


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--target", action="append", help=f"default: {', '.join(TARGETS)}")
    args = parser.parse_args()
    try:
        for model in args.models:
            for name in args.target or TARGETS:
                for row in rows_of(model, load_target(name)):
                    print(row, flush=True)
    except AutotuneError as error:
        sys.exit(f"error: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
