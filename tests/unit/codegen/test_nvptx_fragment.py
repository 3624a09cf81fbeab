"""Tensor cores and asynchronous copies as CUDA: on the emulator, through ptxas, and as text."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.errors import VerifyError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.target import Target, load_target
from autotune.types import Array
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.ptxas import assemble
from tests.unit.codegen.tensor_programs import tensor_matmul

SM80, SM90 = load_target("sm_80"), load_target("sm_90a")
PROGRAMS = {dtype: tensor_matmul(dtype) for dtype in ("bfloat16", "float32", "int8")}
ERRORS = {"bfloat16": 5e-3, "float32": 2e-3, "int8": 0}
"""Of operands with 8 and 11 significant bits, and none."""
each = pytest.mark.parametrize("dtype", PROGRAMS)


def inputs(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    out = {}
    for param in program.params:
        whole = rng.integers(-100, 100, param.shape)
        real = rng.standard_normal(param.shape).astype(np.float32)
        out[param.name] = whole.astype(param.dtype) if "int" in param.dtype else real
    return out


@functools.cache
def expected(dtype: str) -> Array:
    """What the interpreter makes of the program."""
    return run(PROGRAMS[dtype], inputs(PROGRAMS[dtype]))


@each
def test_the_interpreter_multiplies_matrices(dtype: str) -> None:
    program = PROGRAMS[dtype]
    verify(program)
    arrays = inputs(program)
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    want = np.maximum(wide["i0"] @ wide["c0"].T + wide["c1"], 0)
    assert np.max(np.abs(expected(dtype) - want)) <= ERRORS[dtype] * np.max(want)


@each
def test_threads_hold_and_multiply_the_right_elements(dtype: str) -> None:
    program = PROGRAMS[dtype]
    arrays = inputs(program)
    got = run_emulated(program, SM80, arrays)
    np.testing.assert_allclose(got, expected(dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [SM80, SM90], ids=lambda t: t.name)
@each
def test_ptxas_accepts_tensor_cores(dtype: str, target: Target) -> None:
    text = backend_for(target).source(PROGRAMS[dtype], target, "kernel")
    (report,) = assemble(text, target.arch).values()
    assert report.spill_bytes == report.stack_bytes == 0


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("bfloat16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
     ("float32", "m16n8k8.row.col.f32.tf32.tf32.f32"), ("int8", "m16n8k32.row.col.s32.s8.s8.s32")],
)  # fmt: skip
def test_instructions_are_those_of_tensor_cores(dtype: str, shape: str) -> None:
    text = backend_for(SM80).source(PROGRAMS[dtype], SM80, "kernel")
    assert text.count(f"mma.sync.aligned.{shape}") == 4
    # a fragment of the operands is loaded once: two of each
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 2
    assert text.count("ldmatrix.sync.aligned.m8n8.x2.shared.b16") == 2
    assert "cp.async.cg.shared.global" in text
    assert "cp.async.wait_group" in text
    assert "ld.local" not in text


@each
def test_text_of_what_threads_do_together_is_read_back(dtype: str) -> None:
    program = PROGRAMS[dtype]
    assert parse_program(print_program(program)) == program


def test_a_copy_that_is_not_waited_for_is_seen() -> None:
    text = print_program(PROGRAMS["bfloat16"]).replace("wait 1", "wait 2")
    program = parse_program(text)
    arrays = inputs(program)
    assert not np.all(np.isfinite(run(program, arrays)))
    with pytest.raises(AssertionError, match="a race"):  # copies that are early are there
        run_emulated(program, SM80, arrays)


def copy(count: int, place: str) -> str:
    return f"""program copy
param i0: float32[64]
param o0: float32[8] written
for b in 1 block.x:
  alloc s: float32[32] shared:
    for t in 1 thread.x:
      copy {count} s[0] from i0[{place}]
    commit
    wait 0
    barrier
    for u in 8 thread.x:
      o0[u] = s[u]
"""


@pytest.mark.parametrize(
    ("count", "place", "later"),
    [(4, "0", True), (2, "2", True), (1, "1", True), (8, "0", False), (4, "1", False)],
)
def test_copies_that_cannot_be_asynchronous_are_made_at_once(
    count: int, place: str, later: bool
) -> None:
    program = parse_program(copy(count, place))
    arrays = inputs(program)
    text = backend_for(SM80).source(program, SM80, "kernel")
    assert ("shared.global" in text) == later
    got, want = run_emulated(program, SM80, arrays), run(program, arrays)
    np.testing.assert_array_equal(got[:count], want[:count])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("in 8 fragment.n", "in 4 fragment.n", "one of 8"),
     ("for w1 in 4 warp:", "for w1 in 4 warp:\n            barrier", "stand in a block"),
     ("for w1 in 4 warp", "for w1 in 4 thread.x", "in a warp loop"),
     ("float32[32, 16] fragment", "float32[40, 16] fragment", "matrices of"),
     ("mma acc[16*m1, 8*n1]", "mma acc[16*m1 + 16, 8*n1]", "accessed at"),
     ("b: bfloat16", "b: int8", "type of elements")],
)  # fmt: skip
def test_what_no_warp_can_do_is_refused(old: str, new: str, words: str) -> None:
    text = print_program(PROGRAMS["bfloat16"])
    assert old in text
    with pytest.raises(VerifyError, match=words):
        verify(parse_program(text.replace(old, new)))
