"""The CUDA backend: what its kernels compute on an emulated GPU, and PTX that ptxas accepts."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.codegen.base import DeviceCode
from autotune.codegen.nvptx.kernel import write_kernels
from autotune.errors import BuildError
from autotune.program.ir import Program
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.ptxas import assemble
from tests.unit.codegen.kernels import assert_close, conv_relu, matmul, unary
from tests.unit.codegen.nvptx_programs import ADD, MATMUL, PROGRAMS, TAIL, TRANSPOSE, TWO

SM80, SM90 = load_target("sm_80"), load_target("sm_90a")


def inputs(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    given = [p for p in program.params if not p.written]
    return {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in given}


def ptx(program: Program, target: Target = SM80) -> str:
    return backend_for(target).source(program, target, "kernel")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_kernels_compute_what_the_program_says(program: Program) -> None:
    verify(program)
    arrays = inputs(program)
    assert_close(run_emulated(program, SM80, arrays), run(program, arrays))


@pytest.mark.parametrize("target", [SM80, SM90], ids=lambda t: t.name)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_ptxas_accepts_kernels_without_spills(program: Program, target: Target) -> None:
    reports = assemble(ptx(program, target), target.arch)
    launches = write_kernels(program, target, "kernel").launches
    assert reports.keys() == {launch.kernel for launch in launches}
    assert all(r.spill_bytes == r.stack_bytes == 0 for r in reports.values())


@pytest.mark.parametrize(
    "made",
    [conv_relu(), matmul(), unary("softmax", (3, 37), axis=-1), unary("neg", (33,), "int64"),
     unary("not", (19,), "bool")],
    ids=lambda made: made.key[:24],
)  # fmt: skip
def test_programs_that_are_not_bound_run_too(made: Task) -> None:
    arrays = random_inputs(made, 0)
    program = build_program(made)
    want = evaluate_task(made, arrays)
    assert_close(run_emulated(program, SM80, arrays), want)
    assert assemble(ptx(program), "sm_80")


def test_device_code_says_how_kernels_are_launched() -> None:
    code = DeviceCode.decode(backend_for(SM80).build(TWO, SM80, "two").code)
    assert [launch.kernel for launch in code.launches] == ["two_0", "two_1"]
    assert [launch.args for launch in code.launches] == [("i0", "t0"), ("o0", "t0")]
    assert {(launch.grid, launch.block) for launch in code.launches} == {((5, 1, 1), (8, 1, 1))}
    assert code.scratch == (("t0", 0),)
    assert code.workspace_bytes == 192


def test_shared_memory_is_asked_for_at_the_launch() -> None:
    launch = write_kernels(MATMUL, SM80, "kernel").launches[0]
    assert launch.shared_bytes == 2 * 8 * 32 * 4
    assert ".extern .shared .align 128 .b8 shared_memory[]" in ptx(MATMUL)


def test_vectors_are_single_instructions() -> None:
    text = ptx(MATMUL)
    assert "ld.global.nc.v4.b32" in text  # weights: through the read-only path
    assert "ld.shared.v4.b32" in text
    assert "st.global.v4.b32" in text
    assert "ld.local" not in text


def test_equal_loads_of_shared_memory_are_one() -> None:
    # a fragment of four per row and column, for each of 8 steps
    assert ptx(MATMUL).count("ld.shared.v4.b32") == 16


def test_the_number_of_threads_is_promised_to_ptxas() -> None:
    assert ".reqntid 8, 8, 1" in ptx(MATMUL)


def test_a_vector_at_an_odd_place_is_taken_apart() -> None:
    program = parse_program("""program shifted
param i0: float32[132]
param o0: float32[128] written
for b in 1 block.x:
  for t in 32 thread.x:
    for v in 4 vector:
      o0[4*t + v] = i0[4*t + v + 1]
""")
    text = ptx(program)
    assert "ld.global.v4" not in text
    assert "st.global.v4.b32" in text
    arrays = inputs(program)
    assert_close(run_emulated(program, SM80, arrays), run(program, arrays))


def test_a_halo_of_odd_width_moves_vectors_out_of_step() -> None:
    program = parse_program("""program haloed
param i0: float32[4, 4] strides [5, 1] halo [0:0, 1:0]
param o0: float32[16] written
for b in 1 block.x:
  for t in 1 thread.x:
    for v in 4 vector:
      o0[v] = i0[0, v]
""")
    assert "ld.global.v4" not in ptx(program)


def test_some_channels_of_a_tensor_may_begin_anywhere() -> None:
    program = parse_program("""program channels
param i0: float32[1, 2, 8] strides [32, 16, 1]
param o0: float32[1, 2, 8] written
for b in 2 block.x:
  for t in 2 thread.x:
    for v in 4 vector:
      o0[0, b, 4*t + v] = i0[0, b, 4*t + v]
""")
    text = ptx(program)
    assert "ld.global.v4" not in text
    assert "st.global.v4" in text


def test_small_divisions_are_done_in_32_bits() -> None:
    text = write_kernels(TAIL, SM80, "kernel").text
    assert "udiv i32" in text
    assert "udiv i64" not in text


def test_a_transpose_through_shared_memory() -> None:
    arrays = inputs(TRANSPOSE)
    np.testing.assert_array_equal(run_emulated(TRANSPOSE, SM80, arrays), arrays["i0"].T)


@pytest.mark.parametrize(
    ("extents", "words"),
    [((1, 1, 2048), "2048 threads"), ((1, 70000, 1), "70000")],
)
def test_what_no_gpu_can_run_is_an_error(extents: tuple[int, int, int], words: str) -> None:
    x, y, threads = extents
    program = parse_program(f"""program large
param i0: float32[{x * y * threads}]
param o0: float32[{x * y * threads}] written
for b in {y} block.y:
  for t in {threads} thread.x:
    o0[{threads}*b + t] = i0[{threads}*b + t]
""")
    with pytest.raises(BuildError, match=words):
        ptx(program)


def test_too_much_shared_memory_is_an_error() -> None:
    text = """program large
param i0: float32[64]
param o0: float32[64] written
for b in 1 block.x:
  alloc s: float32[60000] shared:
    for t in 64 thread.x:
      s[t] = i0[t]
    barrier
    for u in 64 thread.x:
      o0[u] = s[63 - u]
"""
    with pytest.raises(BuildError, match="240000 bytes of shared"):
        ptx(parse_program(text))


def test_weights_only_are_read_as_if_nothing_wrote_them() -> None:
    text = ptx(ADD)
    assert "ld.global.v4.b32" in text
    assert "ld.global.nc" not in text  # an activation may be the output's memory


def test_unrolled_divisions_differ_by_constants() -> None:
    program = parse_program("""program strided
param i0: float32[8, 64]
param o0: float32[16, 32] written
for b in 1 block.x:
  for t in 128 thread.x:
    for c in 4 unroll:
      o0[(128*c + t // 32), (t % 32)] = i0[(128*c + t // 64), (t % 64)]
""")
    text = write_kernels(program, SM80, "kernel").text
    assert text.count("udiv i32") == 2
    arrays = inputs(program)
    assert_close(run_emulated(program, SM80, arrays), run(program, arrays))
