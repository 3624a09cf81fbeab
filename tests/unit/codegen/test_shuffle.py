"""Exchange of registers between threads, as PTX and as OpenCL C."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.codegen.c import opencl as c_opencl
from autotune.errors import BuildError
from autotune.program.ir import Program
from autotune.target import load_target
from tests.emulator import run_emulated
from tests.interpreter.parse import parse_program
from tests.ptxas import assemble
from tests.unit.codegen.kernels import node, run_kernel, task, value

SM80, OPENCL = load_target("sm_80"), load_target("opencl")


def exchange(combine: str, dtype: str, width: int, threads: int = 64) -> Program:
    """Groups of threads combine what they load; all of them store it."""
    return parse_program(f"""program p
param i0: {dtype}[{threads}]
param o0: {dtype}[{threads}] written
for b in 1 block.x:
  alloc r: {dtype}[1] register:
    for t in {threads} thread.x:
      r[0] = i0[t]
    shuffle {combine} {width} r[0]
    for u in {threads} thread.x:
      o0[u] = r[0]
""")


def expected(combine: str, x: np.ndarray, width: int) -> np.ndarray:
    function = {"sum": np.add, "max": np.maximum, "prod": np.multiply}[combine]
    return np.repeat(function.reduce(x.reshape(-1, width), axis=1), width)


DATA = np.random.default_rng(0).normal(size=64)
each = pytest.mark.parametrize(
    ("combine", "dtype", "width"),
    [("sum", "float32", 32), ("max", "float32", 8), ("prod", "float64", 16), ("sum", "int32", 2)],
)


@each
def test_threads_exchange_registers(combine: str, dtype: str, width: int) -> None:
    x = (DATA * 9).astype(dtype)
    program = exchange(combine, dtype, width)
    found = run_emulated(program, SM80, {"i0": x})
    np.testing.assert_allclose(found, expected(combine, x, width), rtol=1e-5)


@each
def test_items_exchange_through_local_memory(combine: str, dtype: str, width: int) -> None:
    x = (DATA * 9).astype(dtype)
    values = (value(name, (64,), dtype) for name in ("i0", "o0"))
    made = task([node("neg", "i0", "o0")], *values)
    found = run_kernel(made, exchange(combine, dtype, width), OPENCL, {"i0": x})
    np.testing.assert_allclose(found, expected(combine, x, width), rtol=1e-5)


def test_ptx_exchanges_by_one_instruction_a_round() -> None:
    text = backend_for(SM80).source(exchange("sum", "float32", 32), SM80, "k")
    assert text.count("shfl.sync.bfly.b32") == 5
    assert "bar.sync" not in text
    assert assemble(text, "sm_80")["k_0"].spill_bytes == 0


def test_opencl_uses_subgroups_where_there_are_any() -> None:
    text = backend_for(OPENCL).source(exchange("sum", "float32", 32), OPENCL, "k")
    assert "sub_group_shuffle_xor(value, far)" in text
    assert "if (SUBGROUPS(32, 64))" in text


def test_the_way_through_subgroups_is_five_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL has no subgroups: stand-ins give every item its own value back."""
    stand_ins = (
        "#define cl_khr_subgroup_shuffle\n#define get_max_sub_group_size() 64u\n"
        "#define sub_group_shuffle_xor(value, far) (value)\n"
    )
    lines = [line for line in c_opencl._SHUFFLE.split("\n") if "#pragma" not in line]
    monkeypatch.setattr(c_opencl, "_SHUFFLE", stand_ins + "\n".join(lines))
    x = DATA.astype("float32")
    made = task([node("neg", "i0", "o0")], value("i0", (64,)), value("o0", (64,)))
    found = run_kernel(made, exchange("sum", "float32", 32), OPENCL, {"i0": x})
    np.testing.assert_array_equal(found, x * 32)


def test_cuda_needs_whole_warps() -> None:
    with pytest.raises(BuildError, match="whole warps"):
        backend_for(SM80).source(exchange("sum", "float32", 8, threads=16), SM80, "k")
