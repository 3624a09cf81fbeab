"""Inner loops by llvm-mca: which code is theirs, and what it reaches."""

from __future__ import annotations

import pytest

from autotune.target import load_target
from benchmarks.machines.mca_code import CodeBlock, code_blocks, matched
from benchmarks.machines.mca_tiles import TileScore, tile_score
from benchmarks.mca import ProductLoop, Score, product_loops, score
from tests.interpreter.parse import parse_program
from tests.needs import needs
from tests.unit.codegen.kernels import matmul, node, norm_of_rows, task, value

PROGRAM = """program tails
param i0: float32[9, 8]
param c0: float32[8, 8] constant
param o0: float32[9, 8] written
for points in 3 serial:
  if 0 <= points < 2:
    alloc t: float32[4, 2, 4] register:
      for k in 8 serial:
        for p in 4 unroll:
          for v in 2 unroll:
            for l in 4 vector:
              t[p, v, l] sum= mul(i0[p + 4*points, k], c0[k, l + 4*v])
  if 2 <= points < 3:
    alloc u: float32[4, 2, 4] register:
      for m in 8 serial:
        for q in 4 unroll:
          for w in 2 unroll:
            for n in 4 vector:
              if 0 <= q + 8 < 9:
                u[q, w, n] sum= mul(i0[q + 8, m], c0[m, n + 4*w])
"""
ASSEMBLY = """
	ldr	q0, [x0]
.LBB0_1:
	ldr	q1, [x1], #16           // 16-byte Reload
	str	q2, [sp, #32]
	fmla	v2.4s, v1.4s, v0.s[1]
	fmla	v3.4s, v1.4s, v0.s[2]
	subs	x2, x2, #1
	b.ne	.LBB0_1
	fmul	v4.4s, v2.4s, v3.4s
	ret
"""


def test_a_loop_runs_as_often_as_its_guards_let_it() -> None:
    loops = product_loops(parse_program(PROGRAM), 4)
    assert loops == [
        ProductLoop(iterations=16, multiply_adds=8), ProductLoop(iterations=8, multiply_adds=2)
    ]  # fmt: skip


def test_blocks_end_at_labels_and_branches() -> None:
    blocks = code_blocks(ASSEMBLY)
    assert [len(b.lines) for b in blocks] == [1, 6, 2]
    assert [b.multiply_adds for b in blocks] == [0, 2, 0]
    assert [b.products for b in blocks] == [0, 2, 1]
    assert [b.spills for b in blocks] == [0, 1, 0]


def test_code_that_is_missing_is_said() -> None:
    block = CodeBlock(lines=("fmla\tv2.4s, v1.4s, v0.4s",))
    assert matched([ProductLoop(iterations=1, multiply_adds=1)], [block]) == [block]
    with pytest.raises(ValueError, match="no code for"):
        matched([ProductLoop(iterations=1, multiply_adds=2)], [block])


def test_what_is_no_product_has_no_score() -> None:
    assert score(norm_of_rows(8, 64), load_target("cortex-a72")) is None


@needs("llvm-mca")
@pytest.mark.parametrize("name", ["cortex-a72", "neoverse-v1", "x86-64-avx-vnni"])
def test_a_default_s_inner_loops_multiply_as_fast_as_the_core_does(name: str) -> None:
    found = score(matmul(128, 384, 384), load_target(name))
    assert isinstance(found, Score)
    assert found.share > 0.9
    assert found.spills == 0


@needs("llvm-mca")
def test_bytes_are_multiplied_by_the_instruction_for_256_bits() -> None:
    made = task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (96, 512), "uint8"), value("c0", (512, 256), "int8"),
        value("o0", (96, 256), "int32"),
    )  # fmt: skip
    found = score(made, load_target("x86-64-avx-vnni"))
    assert isinstance(found, Score)
    assert found.share > 0.9
    assert found.spills == 0


def test_tiles_are_multiplied_as_fast_as_their_loads_and_latency_let_them() -> None:
    target = load_target("x86-64-amx").with_precision("bf16")
    found = score(matmul(128, 768, 768), target)
    assert isinstance(found, TileScore)
    assert found.share > 0.9
    assert found.spills == 0
    loads = CodeBlock(lines=("tileloadd\t(%rax,%rbx), %tmm4", "tdpbf16ps\t%tmm6, %tmm4, %tmm0"))
    alone = tile_score(matmul(16, 32, 16), [loads])
    assert alone.share == pytest.approx(16 / 52)  # every product waits for the one before it
