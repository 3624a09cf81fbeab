"""OpenCL code of programs bound to blocks and threads, run by whatever OpenCL device is here."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import pytest

from autotune.codegen import DeviceCode, backend_for
from autotune.errors import BuildError, DeviceError
from autotune.measure.devices import DEVICES, open_device
from autotune.measure.devices.kernel import DeviceKernel
from autotune.measure.storage import place_dense
from autotune.program.ir import Program
from autotune.target import load_target
from autotune.types import Array
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.gpu_programs import row_sums, stages, tiled_matmul
from tests.unit.codegen.kernels import device_of
from tests.unit.codegen.nvptx_programs import PROGRAMS
from tests.unit.codegen.tensor_programs import tensor_matmul

TARGET = load_target("opencl")
EXAMPLES = pytest.mark.parametrize(
    "made", [tiled_matmul, row_sums, stages], ids=lambda f: f.__name__
)


def run_on_device(program: Program, arrays: Mapping[str, Array]) -> Array:
    code = backend_for(TARGET).build(program, TARGET, "kernel").code
    output = next(p for p in program.params if p.written)
    floats = output.dtype.startswith("float")
    garbage = np.full(output.shape, np.nan if floats else 77, output.dtype)
    storages = {name: place_dense(array) for name, array in arrays.items()}
    storages[output.name] = place_dense(garbage)
    kernel = DeviceKernel(device_of("opencl"), DeviceCode.decode(code), storages)
    kernel.launch()
    kernel.fetch(output.name, storages[output.name])
    return storages[output.name].view


@EXAMPLES
def test_bound_programs_are_right(made) -> None:  # type: ignore[no-untyped-def]
    program, arrays, want = made()
    verify(program)
    np.testing.assert_allclose(run(program, arrays), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_on_device(program, arrays), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_device_and_interpreter_agree(program: Program) -> None:
    rng = np.random.default_rng(2)
    given = [p for p in program.params if not p.written]
    arrays = {p.name: rng.standard_normal(p.shape).astype(p.dtype) for p in given}
    want = run(program, arrays)
    np.testing.assert_allclose(run_on_device(program, arrays), want, rtol=1e-4, atol=1e-5)


ODD_INTEGERS = """program odd
param i0: {0}[6]
param o0: {0}[6] written
for i in 6 block.x:
  o0[i] = sub({0}({1}), abs(i0[i]))
"""


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_magnitudes_and_least_integers_keep_their_types(dtype: str) -> None:
    """In C a negative short is an int, and 2147483648 a long."""
    limits = np.iinfo(dtype)
    given = np.array([limits.min, limits.min + 1, -1, 0, 1, limits.max], dtype)
    program = parse_program(ODD_INTEGERS.format(dtype, limits.min))
    with np.errstate(over="ignore"):
        want = np.array(limits.min, dtype) - np.abs(given)
    np.testing.assert_array_equal(run_on_device(program, {"i0": given}), want)


def test_launches_say_grid_block_and_buffers() -> None:
    program, _, _ = row_sums()
    code = DeviceCode.decode(backend_for(TARGET).build(program, TARGET, "k").code)
    first, second = code.launches
    assert (first.kernel, first.grid, first.block) == ("k_0", (6, 1, 1), (32, 1, 1))
    assert (second.kernel, second.grid, second.block) == ("k_1", (6, 1, 1), (16, 1, 1))
    assert first.args == ("i0", "total")
    assert second.args == ("i0", "o0", "total")
    assert code.scratch == (("total", 0),)
    assert code.workspace_bytes == 64


def test_encoded_code_is_read_back() -> None:
    program, _, _ = tiled_matmul()
    code = DeviceCode.decode(backend_for(TARGET).build(program, TARGET, "k").code)
    assert DeviceCode.decode(code.encode()) == code


def test_other_bytes_are_no_device_code() -> None:
    with pytest.raises(BuildError, match="expected device code, got"):
        DeviceCode.decode(b"\x7fELF\n")


def test_tensor_cores_are_a_build_error() -> None:
    with pytest.raises(BuildError, match="no fragment memory in OpenCL"):
        backend_for(TARGET).build(tensor_matmul("float32"), TARGET, "k")


def test_a_machine_without_the_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r"pip install 'autotune-compiler\[opencl\]'"):
        open_device(TARGET)
    assert DEVICES.get("opencl").find() == ()
