"""What the emulator finds in kernels: copies into memory that is still read, odd addresses."""

from __future__ import annotations

import dataclasses
import re
from unittest import mock

import numpy as np
import pytest

import tests.emulator
from autotune.codegen.nvptx.kernel import write_kernels
from autotune.program.ir import Program
from autotune.target import load_target
from autotune.types import Array
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.unit.codegen.nvptx_programs import TRANSPOSE
from tests.unit.codegen.stream_programs import stream_matmul
from tests.unit.codegen.tensor_programs import tensor_matmul

SM80, SM90 = load_target("sm_80"), load_target("sm_90a")

# Copies for the next iteration go to the half of shared memory that the last one read.
STAGES = """program stages
param i0: float32[256]
param o0: float32[256] written
for b in 1 block.x:
  alloc s: float32[2, 64] shared:
    for t0 in 64 thread.x:
      copy 1 s[0, t0] from i0[t0]
    commit
    for k in 4 serial:
      for t1 in 64 thread.x:
        if 0 <= k < 3:
          copy 1 s[((k + 1) % 2), t1] from i0[64*k + t1 + 64]
      commit
      wait 1
      barrier
      for t2 in 64 thread.x:
        o0[64*k + t2] = s[(k % 2), 63 - t2]
      barrier
    wait 0
"""
LAST_BARRIER = "      barrier\n    wait 0"
COPIES, PRODUCT = parse_program(STAGES), tensor_matmul("bfloat16")


def inputs(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in program.params}


def test_copies_wait_for_readers() -> None:
    arrays = inputs(COPIES)
    np.testing.assert_array_equal(run_emulated(COPIES, SM80, arrays), run(COPIES, arrays))


def test_copies_that_arrive_before_all_have_read_are_found() -> None:
    """Only if they arrive at once: as late as they may, everyone has read."""
    hasty = parse_program(STAGES.replace(LAST_BARRIER, "    wait 0"))
    with pytest.raises(AssertionError, match="a race"):
        run_emulated(hasty, SM80, inputs(hasty))


@pytest.mark.parametrize(
    ("program", "old", "new"),
    [
        (TRANSPOSE, r"align 4$", "align 16"),
        (COPIES, r"ca\.shared\.global\.4", "cg.shared.global.16"),
        (PRODUCT, r"(@shared_memory to ptr\), i64) 0$", r"\1 2"),
    ],
    ids=["load", "copy", "ldmatrix"],
)
def test_odd_addresses_are_found(program: Program, old: str, new: str) -> None:
    made = write_kernels(program, SM80, "kernel")
    text, count = re.subn(old, new, made.text, flags=re.MULTILINE)
    assert count
    changed = dataclasses.replace(made, text=text)
    with (
        mock.patch.object(tests.emulator, "write_kernels", return_value=changed),
        pytest.raises(AssertionError, match="less aligned"),
    ):
        run_emulated(program, SM80, inputs(program))


@pytest.mark.parametrize("program", [stream_matmul(), PRODUCT], ids=lambda p: p.name)
def test_what_warps_do_together_stays_where_it_is(program: Program) -> None:
    """LLVM knows it of its own intrinsics, but not of products and of inline PTX."""
    calls = re.findall(r".*(?: asm |@llvm\.nvvm\.mma).*", write_kernels(program, SM90, "k").text)
    calls = [c for c in calls if not c.startswith("declare")]
    assert calls
    assert all(c.endswith(") convergent") for c in calls)
