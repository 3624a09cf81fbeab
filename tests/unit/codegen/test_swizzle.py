"""Layouts of shared memory: no bank is asked twice for what could be had at once."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.contracts.test_rules import arrays_of
from tests.emulator import BankUse, bank_use, run_emulated
from tests.interpreter.parse import parse_program
from tests.ptxas import assemble
from tests.unit.codegen.kernels import assert_close, matmul, node, run_kernel, task, value

TARGET = load_target("sm_80").with_precision("bfloat16")
PRODUCT = matmul(32, 128, 32)


def product(algorithm: str, depth: int, layout: str, stages: int = 2) -> Program:
    rule = rule_for(PRODUCT, TARGET)
    wanted = {
        "algorithm": algorithm, "tile_m": 2, "tile_n": 2, "threads_m": 1, "threads_n": 2,
        "depth": depth, "unroll": 1, "stages": stages, "split": 1, "order": "rows_first",
        "layout": layout, "band": 1,
    }  # fmt: skip
    config = Config(tuple(wanted.items()))
    assert rule.space(PRODUCT, TARGET).contains(config)
    return apply_schedule(build_program(PRODUCT), rule.schedule(PRODUCT, TARGET, config))


def used(program: Program, tolerance: float) -> BankUse:
    arrays, want = arrays_of(PRODUCT)
    bank_use()
    assert_close(run_emulated(program, TARGET, arrays), want, tolerance)
    return bank_use()


@pytest.mark.parametrize(
    ("algorithm", "depth"), [("bf16", 16), ("bf16", 32), ("bf16", 64), ("tf32", 8), ("tf32", 64)]
)
def test_swizzled_matrices_and_copies_have_no_conflicts(algorithm: str, depth: int) -> None:
    found = used(product(algorithm, depth, "swizzled"), 2e-2)
    assert min(found.matrices, found.copies) > 0
    assert (found.matrix_conflicts, found.copy_conflicts) == (0, 0)


def test_padded_matrices_have_no_conflicts_but_copies_do() -> None:
    found = used(product("bf16", 16, "padded"), 2e-2)
    assert found.matrix_conflicts == 0
    assert found.copy_conflicts > 0


def test_plain_rows_have_conflicts() -> None:
    text = print_program(product("bf16", 32, "swizzled"))
    plain = "\n".join(
        line.split(" swizzle ")[0] + ":" * (" swizzle " in line) for line in text.split("\n")
    )
    assert used(parse_program(plain), 2e-2).matrix_conflicts > 0


def test_the_layout_costs_no_memory() -> None:
    text = backend_for(TARGET).source(product("bf16", 32, "swizzled"), TARGET, "k")
    assert assemble(text, "sm_80")["k_0"].spill_bytes == 0
    assert "xor.b" in text


def test_opencl_finds_the_elements_too() -> None:
    text = """program p
param i0: float32[8, 16]
param o0: float32[8, 16] written
for b in 1 block.x:
  alloc s: float32[8, 16] shared swizzle [2, 2, 3]:
    for t in 32 thread.x:
      for v in 4 vector:
        s[(t // 4), 4*(t % 4) + v] = i0[(t // 4), 4*(t % 4) + v]
    barrier
    for u in 8 thread.x:
      for j in 16 serial:
        o0[u, j] = s[u, j]
"""
    x = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)

    made = task([node("neg", "i0", "o0")], value("i0", (8, 16)), value("o0", (8, 16)))
    target = load_target("opencl")
    found = run_kernel(made, parse_program(text), target, {"i0": x})
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(run_emulated(parse_program(text), TARGET, {"i0": x}), x)
