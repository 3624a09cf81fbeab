"""Loops of WebAssembly: distances are in the instructions that load, and a default tile is what
engines have registers for."""

from __future__ import annotations

import pytest

import cost_model
from autotune.codegen.llvm.backend import LlvmBackend, assembly_text
from autotune.machine import Machine
from autotune.machine.cpu import adds_apart
from autotune.target import load_target
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import node, task, value

TARGETS = ("wasm32", "wasm32-relaxed")
POINTWISE = task(
    [node("conv2d", "i0 c0", "o0")],
    value("i0", (1, 14, 14, 96)),
    value("c0", (1, 1, 96, 576)),
    value("o0", (1, 14, 14, 576)),
)
WINDOW = task(
    [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
    value("i0", (1, 28, 28, 64), "float32", ((0, 0), (1, 1), (1, 1), (0, 0))),
    value("c0", (3, 3, 64, 64)),
    value("o0", (1, 28, 28, 64)),
)
DEPTHWISE = task(
    [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1), groups=64)],
    value("i0", (1, 28, 28, 64), "float32", ((0, 0), (1, 1), (1, 1), (0, 0))),
    value("c0", (3, 3, 1, 64)),
    value("o0", (1, 28, 28, 64)),
)


def loops(one: Task, target: str) -> list[list[str]]:
    """Instructions of every innermost loop of a task's default schedule, of direct code."""
    to = load_target(target)
    rule = rule_for(one, to)
    params = {param.name for param in rule.space(one, to).params}
    settled = {"algorithm": "direct"} if "algorithm" in params else {}
    made = rule.write(one, to, cost_model.default(one, Machine.of(to), rule, settled))
    text = assembly_text(LlvmBackend().source(made.program, to, "kernel"), to)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    found, start = [], None
    for number, line in enumerate(lines):
        if line == "loop":
            start = number
        elif line == "end_loop" and start is not None:
            found.append(lines[start:number])
            start = None
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("one", [POINTWISE, WINDOW, DEPTHWISE])
def test_an_address_is_a_pointer_and_a_distance(one: Task, target: str) -> None:
    for loop in loops(one, target):
        loads = [n for n, line in enumerate(loop) if line.startswith("v128.load")]
        computed = [loop[n - 1 : n + 1] for n in loads if loop[n - 1].startswith("i32.add")]
        assert len(computed) <= 1, computed  # the first one may be where a pointer is moved


@pytest.mark.parametrize("target", TARGETS)
def test_a_step_s_operands_and_sums_fit_into_registers(target: str) -> None:
    to = load_target(target)
    body = max(loops(POINTWISE, target), key=lambda loop: sum("f32x4" in line for line in loop))
    sums = sum(line.startswith(("f32x4.add", "f32x4.relaxed_madd")) for line in body)
    operands = sum(line.startswith("v128.load") for line in body)
    assert sums >= 6
    assert sums + operands + adds_apart(to) <= to.vector_registers
