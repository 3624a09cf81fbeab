"""Cycles and instructions of int8 models on a simulated Cortex-M4, kernel by kernel, untuned.

    python benchmarks/microcontrollers.py FOLDER/*.tflite

Needs the extras `tflite` and `simulator`, and Debian's gcc-arm-none-eabi and
libnewlib-arm-none-eabi. Sums over kernels, each as often as the model calls it; a run of a model
adds calls and copies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cost_model
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.machine import Machine
from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.types import MeasureRequest, Timing
from autotune.placement.partition import partition
from autotune.target import load_target
from search_spaces.rules import rule_for

TARGET = load_target("cortex-m4")


def counted(path: str) -> tuple[float, float, float]:
    """(millions of instructions, of cycles, milliseconds)."""
    executor, machine = UnicornExecutor(), Machine.of(TARGET)
    instructions = cycles = milliseconds = 0.0
    for task, calls in partition(optimize(load_model(path))).weights().items():
        rule = rule_for(task, TARGET)
        schedule = rule.schedule(task, TARGET, cost_model.default(task, machine, rule))
        asked = MeasureRequest(
            task=task, schedule=schedule, target=TARGET, timing=Timing(run_timeout_s=600)
        )
        result = executor.check_and_time(asked, executor.build(asked))
        if not result.times_s:
            raise SystemExit(f"{path}: {task.key}: {result.error}")
        words = result.conditions.split()
        cycles += calls * float(words[1]) / 1e6
        instructions += calls * float(words[-2]) / 1e6
        milliseconds += calls * result.median_s * 1e3
    return instructions, cycles, milliseconds


if __name__ == "__main__":
    print(
        "| model | instructions, 10^6 | cycles, 10^6 | ms at 120 MHz |\n| --- | --- | --- | --- |"
    )
    for name in sys.argv[1:]:
        found = counted(name)
        print(f"| {Path(name).stem} | " + " | ".join(f"{n:.2f}" for n in found) + " |", flush=True)
