"""Neighbours that come in one load for multiply-adds by lanes of a register (aarch64)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cost_model
from autotune.codegen.llvm.backend import LlvmBackend
from autotune.codegen.llvm.lane_run import run_width
from autotune.machine import Machine
from autotune.machine.cpu import run_widths
from autotune.measure.execute import build, judge, make_case
from autotune.measure.types import MeasureRequest
from autotune.program.ir import Alloc, For, Program, walk
from autotune.schedule import Schedule, apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.contracts.test_rules import conv
from tests.interpreter.parse import parse_program
from tests.needs import needs
from tests.unit.codegen.kernels import matmul
from tests.unit.rpc_server.emulated import run_emulated

ARM = load_target("neoverse-n1")
PROGRAM = """program steps
param i0: float32[6, 64]
param c0: float32[64, 8] constant
param o0: float32[6, 8] written
alloc t: float32[6, 2, 4] register:
  for s in 16 serial:
    for k in 4 unroll:
      for p in 6 unroll:
        for v in 2 unroll:
          for l in 4 vector:
            {guard}t[p, v, l] sum= mul(i0[p, 4*s + k], c0[4*s + k, l + 4*v])
"""


def schedule(task: Task, **chosen: int | str) -> Schedule:
    """That of the default config with other params."""
    rule = rule_for(task, ARM)
    default = cost_model.default(task, Machine.of(ARM), rule)
    items = dict(default.items) | {"algorithm": "direct", "block": 1, "tile_h": 1} | chosen
    return rule.schedule(task, ARM, Config(tuple(items.items())))


def run_loop(program: Program, registers: int) -> int:
    (alloc,) = (s for s in program.body if isinstance(s, Alloc))
    (loop,) = (s for s in walk(alloc.body) if isinstance(s, For) and s.var == "k")
    buffers = {b.name: b for b in (*program.params, alloc.buffer)}
    return run_width(loop, buffers, registers)


def test_a_load_takes_what_all_steps_multiply_by() -> None:
    program = parse_program(PROGRAM.format(guard=""))
    text = LlvmBackend().source(program, ARM, "kernel")
    assert text.count("load float") == 0
    assert text.count("extractelement <4 x float>") == 4 * 6 * 2
    wide = LlvmBackend().source(program, load_target("x86-64-v3"), "kernel")
    assert "extractelement" not in wide


def test_sums_loads_and_vectors_fit_into_the_registers() -> None:
    program = parse_program(PROGRAM.format(guard=""))
    assert run_loop(program, 12 + 6 + 2 + 1) == 4
    assert run_loop(program, 12 + 6 + 2) == 0


def test_steps_that_are_guarded_load_nothing_for_others() -> None:
    guard = "if 0 <= 4*s + k < 63:\n              "
    assert run_loop(parse_program(PROGRAM.format(guard=guard)), 32) == 0


@needs("qemu", "aarch64-cc")
@pytest.mark.parametrize(
    ("task", "chosen"),
    [
        (matmul(13, 64, 40), {"vectors": 3, "tile_w": 7, "unroll": 4, "lanes": 4}),
        (matmul(9, 36, 22), {"vectors": 2, "tile_w": 4, "unroll": 2, "lanes": 4}),
        (
            conv((1, 9, 9, 24), (3, 3, 24, 20), (1, 9, 9, 20), pad=1, residual=False),
            {"vectors": 4, "tile_w": 3, "unroll": 8, "lanes": 4},
        ),
    ],
)  # fmt: skip
def test_results_are_right(task: Task, chosen: dict[str, int], tmp_path: Path) -> None:
    request = MeasureRequest(task=task, schedule=schedule(task, **chosen), target=ARM, seed=3)
    program = apply_schedule(build_program(task), request.schedule)
    assert "extractelement <" in LlvmBackend().source(program, ARM, "kernel")
    case = make_case(task, request.seed)
    run_emulated(request, build(request), case, tmp_path)
    assert judge(case).error == ""


@pytest.mark.parametrize("name", ["cortex-a72", "neoverse-n1", "neoverse-v1", "apple-m1"])
def test_defaults_leave_registers_for_what_is_loaded_ahead(name: str) -> None:
    target, task = load_target(name), matmul(784, 512, 128)
    default = cost_model.default(task, Machine.of(target), rule_for(task, target))
    points, vectors, unroll = (
        np.asarray([float(default.number(p))]) for p in ("tile_w", "vectors", "unroll")
    )
    assert run_widths(target, points, vectors, unroll, 4)[0] > 1
