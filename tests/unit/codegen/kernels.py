"""Building and calling kernels by hand, and small tasks to make them from."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from autotune.codegen import DEVICE_KINDS, DeviceCode, ObjectCode, backend_for
from autotune.codegen.loader import load
from autotune.measure.devices import Device, open_device
from autotune.measure.devices.kernel import DeviceKernel
from autotune.measure.storage import (
    GuardedTensor,
    aligned_bytes,
    place,
    place_dense,
    place_input,
    reset_output,
    take_output,
)
from autotune.program.ir import Program
from autotune.program.packing import apply_pack
from autotune.sizes import value_at
from autotune.stored import stored
from autotune.target import Target, load_target
from autotune.types import Array, Attr, Layout, Task, TaskNode, TaskValue, TensorType, freeze_attrs
from tests.needs import require_for

ROLES = {"i": "input", "c": "constant", "t": "local", "o": "output"}


def value(
    name: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    pads: tuple[tuple[int, int], ...] = (),
) -> TaskValue:
    """A value whose role is told by its name's first letter; `pads` is its halo."""
    layout = Layout.haloed(shape, pads) if pads else Layout.dense(shape)
    type_ = TensorType(dtype=dtype, shape=shape)
    return TaskValue(name=name, type=type_, role=ROLES[name[0]], layout=layout)


def node(op: str, inputs: str, output: str, **attrs: Attr) -> TaskNode:
    names = tuple(inputs.split())
    return TaskNode(op=op, inputs=names, outputs=(output,), attrs=freeze_attrs(attrs))


def task(nodes: list[TaskNode], *values: TaskValue) -> Task:
    return Task(nodes=tuple(nodes), values=values, anchor=0)


def norm_of_rows(*shape: int) -> Task:
    wide = shape[-1:]
    return task(
        [node("layer_norm", "i0 c0 c1", "o0", axis=len(shape) - 1, epsilon=1e-3)],
        value("i0", shape), value("c0", wide), value("c1", wide), value("o0", shape),
    )  # fmt: skip


def conv_relu(height: int = 6, channels: int = 5, filters: int = 19, kernel: int = 3) -> Task:
    """A convolution of same size with bias and relu; its input has a halo."""
    pad = kernel // 2
    shape = (1, height, 7, filters)
    return task(
        [
            node("conv2d", "i0 c0", "t0", pads=(pad,) * 4),
            node("add", "t0 c1", "t1"),
            node("relu", "t1", "o0"),
        ],
        value("i0", (1, height, 7, channels), pads=((0, 0), (pad, pad), (pad, pad), (0, 0))),
        value("c0", (kernel, kernel, channels, filters)),
        value("c1", (filters,)),
        value("t0", shape),
        value("t1", shape),
        value("o0", shape),
    )


def matmul(m: int = 5, k: int = 7, n: int = 18, constant: bool = True) -> Task:
    b = "c0" if constant else "i1"
    return task(
        [node("matmul", f"i0 {b}", "o0")],
        value("i0", (m, k)),
        value(b, (k, n)),
        value("o0", (m, n)),
    )


def unary(op: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: Attr) -> Task:
    """One op from i0 to o0 of the same type."""
    return task(
        [node(op, "i0", "o0", **attrs)], value("i0", shape, dtype), value("o0", shape, dtype)
    )


def run_kernel(
    task: Task,
    program: Program,
    target: Target,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Array:
    """The output of the program's machine code; `sizes`: of the program's symbols, where the task
    is the one at these. AssertionError where it writes elsewhere; skips
    the test where what compiles or runs it is missing."""
    require_for(target)
    built = backend_for(target).build(program, target, "kernel")
    packs = {p.buffer: p for p in program.packs}
    output = place(task.by_role("output")[0], 0)
    reset_output(output)
    blocks: dict[str, GuardedTensor] = {}
    for param in task.params:
        if param.role == "output":
            blocks[param.name] = output
        elif param.role == "constant":
            array = arrays[param.name]
            pack = packs.get(param.name)
            packed = apply_pack(pack, array) if pack else stored(array, param.type.dtype)
            whole = packed.view(np.uint8) if packed.dtype == bool else packed
            blocks[param.name] = place_dense(whole)
        else:
            blocks[param.name] = place_input(param, arrays[param.name])
    if target.kind in DEVICE_KINDS:
        kernel = DeviceKernel(device_of(target.kind), DeviceCode.decode(built.code), blocks)
        kernel.run(2)
        kernel.fetch(task.by_role("output")[0].name, output)
    else:
        given = np.array([sizes[name] for name in program.symbols], np.int64)
        addresses = [b.address for b in blocks.values()]
        built = dataclasses.replace(built, workspace_bytes=value_at(built.workspace_bytes, sizes))
        _call(built, target, [*addresses, given.ctypes.data] if len(given) else addresses)
    out, strays = take_output(output)
    assert strays == 0, f"{strays} bytes outside of the output were written"
    return out.astype(bool) if task.by_role("output")[0].type.dtype == "bool" else out


@functools.cache
def device_of(kind: str) -> Device:
    """The first device of a kind, opened once; skips the test where there is none."""
    require_for(load_target(kind))
    return open_device(load_target(kind))


def _call(built: ObjectCode, target: Target, addresses: list[int]) -> None:
    library = load([built.code], target)
    workspace = aligned_bytes(built.workspace_bytes, 0xFF)
    addresses = [*addresses, workspace.ctypes.data]
    args = (ctypes.c_void_p * len(addresses))(*addresses)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    function(library.address("kernel_run"))(args, 2)


def assert_close(got: Array, want: Array, tolerance: float = 2e-5) -> None:
    """Equal within a share of the largest value; equal exactly if not floating point."""
    assert got.shape == want.shape
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=1e-3))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * largest)
