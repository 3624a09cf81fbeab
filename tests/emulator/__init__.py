"""CUDA kernels on the processor. In: a program and arrays. Out: what its kernels compute.

The LLVM IR that becomes PTX is compiled for this machine instead; the intrinsics of the GPU are
functions of `emulator.c`. So addresses, guards, barriers and the order of everything are those of
the code that a GPU gets; what LLVM's NVPTX, ptxas and the GPU make of it is not seen here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from autotune.codegen.base import Launch, TensorMap
from autotune.codegen.elf.loader import ElfLibrary, Runtime
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.nvptx.kernel import write_kernels
from autotune.measure.storage import (
    GuardedTensor,
    aligned_bytes,
    place,
    place_dense,
    place_input,
    reset_output,
    take_output,
)
from autotune.program.ir import Buffer, Program
from autotune.program.packing import apply_pack
from autotune.target import Target, host_target
from autotune.types import ITEM_BYTES, Array, TaskValue, TensorType
from tests.emulator.matrices import DECLARED, definitions
from tests.emulator.ptx import host_asm
from tests.needs import require

FAILURES = {
    1: "some threads of a block or warp wait where others do not come",
    2: "the block has too many threads",
    3: "a thread ends before its copies have arrived",
    4: "a thread has too many copies on their way",
    5: "threads wait for fetches or arrivals that never come",
    6: "operands of a product changed before it was done",
    7: "a product is not behind a fence",
    8: "a fetch or a barrier is at an odd place",
    9: "an address is less aligned than its instruction needs",
}


@functools.cache
def compiled() -> ctypes.CDLL:
    """The compiled emulator."""
    require("cc")
    sources = [str(Path(__file__).with_name(name)) for name in ("emulator.c", "hopper.c")]
    with tempfile.TemporaryDirectory(prefix="autotune-emulator-") as folder:
        library = str(Path(folder) / "emulator.so")
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", library, *sources, "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        return ctypes.CDLL(library)


_ACCESS = re.compile(r"^ .*\b(?:load|store) .*, ptr (\S+), align (\d+)$", re.MULTILINE)
_CHECKED = "declare void @emulate_aligned(ptr, i32)\n"


def _checked(access: re.Match[str]) -> str:
    """A load or store, after a look at its address."""
    if access[2] == "1":
        return access[0]
    return f"  call void @emulate_aligned(ptr {access[1]}, i32 {access[2]})\n{access[0]}"


def host_text(text: str, launches: Sequence[Launch]) -> str:
    """The kernels' text for this machine: NAME_emulated(args) per launch."""
    text = _CHECKED + _ACCESS.sub(_checked, text)
    text = host_asm(text).replace("ptx_kernel ", "")
    text = text.replace("addrspacecast (ptr addrspace(3) @shared_memory to ptr)", "@shared_memory")
    text = text.replace("external addrspace(3) global", "external global")
    text = re.sub(r"addrspacecast ptr (\S+) to ptr addrspace\(\d\)", r"freeze ptr \1", text)
    text = re.sub(r" addrspace\(\d\)", "", text)
    text = re.sub(
        r"@llvm\.nvvm\.([\w.]+)", lambda found: "@emu_" + found[1].replace(".", "_"), text
    )
    matrices = []
    for name, definition in definitions().items():
        text, found = re.subn(rf"^declare .*@{name}\(.*\n", "", text, flags=re.MULTILINE)
        matrices += [definition] * found
    callers = [_caller(launch) for launch in launches]
    return "\n".join([text, DECLARED, *matrices, *callers])


def _caller(launch: Launch) -> str:
    lines = [f"define void @{launch.kernel}_emulated(ptr %args) {{"]
    for i in range(len(launch.args)):
        lines.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
        lines.append(f"  %a{i} = load ptr, ptr %s{i}")
    given = ", ".join(f"ptr %a{i}" for i in range(len(launch.args)))
    return "\n".join([*lines, f"  call void @{launch.kernel}({given})", "  ret void", "}", ""])


@contextmanager
def errors(share: float) -> Iterator[None]:
    """The GPU's approximate functions err by this share (-1 .. 1) of what NVIDIA promises."""
    emulator = compiled()
    emulator.emulate_errors(ctypes.c_double(share))
    yield
    emulator.emulate_errors(ctypes.c_double(0.0))


@dataclass(frozen=True, slots=True)
class BankUse:
    """How often shared memory was asked, and how often more than once for what banks in turn could
    give at once: by `ldmatrix` and by asynchronous copies."""

    matrices: int
    copies: int
    matrix_conflicts: int
    copy_conflicts: int


def bank_use() -> BankUse:
    """What was counted since the last call."""
    counts = (ctypes.c_int64 * 4)()
    compiled().emulate_conflicts(counts)
    return BankUse(*counts)


class Kernels:
    """Kernels of a program, loaded."""

    def __init__(self, text: str, launches: Sequence[Launch]) -> None:
        self._emulator = compiled()
        code = compile_text(host_text(text, launches), host_target())
        self._library = ElfLibrary([code], self._outside)

    def _outside(self, name: str) -> int | None:
        """The address of what the emulator has, or else the runtime of C."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._emulator, name))
        except ValueError:
            return Runtime().address(name)

    def address(self, kernel: str) -> int:
        """Of a function that takes the kernel's arguments as an array."""
        return self._library.address(f"{kernel}_emulated")

    def launch(self, launch: Launch, addresses: Sequence[int], reverse: bool = False) -> None:
        """Run all blocks. AssertionError where the kernel does what no GPU may."""
        plain = len(addresses) - len(launch.maps)
        maps = [_map(*known) for known in zip(launch.maps, addresses[plain:], strict=True)]
        given = [*addresses[:plain], *map(ctypes.addressof, maps)]
        args = (ctypes.c_void_p * len(given))(*given)
        grid, block = ((ctypes.c_uint32 * 3)(*e) for e in (launch.grid, launch.block))
        kernel = ctypes.c_void_p(self.address(launch.kernel))
        status = self._emulator.emulate(kernel, args, grid, block, ctypes.c_int(reverse))
        assert status == 0, f"{launch.kernel}: {FAILURES[status]}"


class _Map(ctypes.Structure):
    """The description of a tensor, as `hopper.c` reads it."""

    _fields_: ClassVar = [
        ("address", ctypes.c_void_p), ("strides", ctypes.c_int64 * 5), ("rank", ctypes.c_int32),
        ("extents", ctypes.c_int32 * 5), ("box", ctypes.c_int32 * 5),
    ]  # fmt: skip


def _map(described: TensorMap, address: int) -> _Map:
    assert address % 16 == 0, "a tensor that is fetched starts at a multiple of 16 bytes"
    strides = (ITEM_BYTES[described.dtype], *described.strides_bytes)
    return _Map(
        address, (ctypes.c_int64 * 5)(*strides), len(strides),
        (ctypes.c_int32 * 5)(*described.extents), (ctypes.c_int32 * 5)(*described.box),
    )  # fmt: skip


def run_emulated(program: Program, target: Target, arrays: Mapping[str, Array]) -> Array:
    """The output of the program's kernels. AssertionError where they write elsewhere, or where the
    result depends on the order in which threads run."""
    made = write_kernels(program, target, "kernel")
    packs = {p.buffer: p for p in program.packs}
    blocks: dict[str, GuardedTensor] = {}
    for param in program.params:
        if param.written:
            blocks[param.name] = output = place(_value(param), 0)
        elif param.constant:
            array = np.asarray(arrays[param.name])
            packed = apply_pack(packs[param.name], array) if param.name in packs else array
            if packed.dtype == bool:
                packed = packed.view(np.uint8)
            blocks[param.name] = place_dense(packed)
        else:
            array = np.asarray(arrays[param.name]).reshape(param.shape)
            blocks[param.name] = place_input(_value(param), array)
    workspace = aligned_bytes(made.workspace_bytes, 0xFF)
    addresses = {name: block.address for name, block in blocks.items()}
    addresses |= {name: workspace.ctypes.data + offset for name, offset in made.scratch}
    kernels = Kernels(made.text, made.launches)
    results = []
    for reverse in (False, True):
        reset_output(output)
        for launch in made.launches:
            kernels.launch(launch, [addresses[a] for a in launch.args], reverse)
        out, strays = take_output(output)
        assert strays == 0, f"{strays} bytes outside of the output were written"
        results.append(out)
    np.testing.assert_array_equal(*results, err_msg="the order of threads matters: a race")
    wanted = next(p.dtype for p in program.params if p.written)
    return results[0].astype(bool) if wanted == "bool" else results[0]


def _value(param: Buffer) -> TaskValue:
    return TaskValue(
        name=param.name,
        type=TensorType(dtype=param.dtype, shape=param.shape),
        role="output" if param.written else "input",
        layout=param.layout,
    )
