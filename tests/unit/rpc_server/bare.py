"""Kernels in a program without a C library, relocated by our own loader and run by an emulator.

In: a request, its object code. Out: its output. The loader lays the kernel out for an
address; that image, and start code with the arguments, become an ELF file of two segments.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from autotune.codegen.elf.image import PAGE, ElfImage, Memory
from autotune.measure.execute import Case
from autotune.measure.storage import reset_output
from autotune.measure.types import Built, MeasureRequest
from tests.needs import require
from tests.patience import PATIENCE_S

CODE, DATA = 0x0040_0000, 0x1000_0000
START, BLOCKS = 512, 1024
"""Where, in the data, the start code is, and what the arguments point to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How to run its code. `start`: instructions before four words; they call the function at the
    second with the first and 1, write what is at the third, as long as the fourth, and end."""

    emulator: tuple[str, ...]
    number: int
    bits: int
    start: tuple[int, ...]
    flags: int = 0


MACHINES = {
    "aarch64": Machine(
        emulator=("qemu-aarch64",),
        number=183,
        bits=64,
        start=(
            0x58000180,  # ldr x0, words + 0
            0xD2800021,  # mov x1, 1
            0x58000190,  # ldr x16, words + 8
            0xD63F0200,  # blr x16
            0xD2800020,  # mov x0, 1
            0x58000161,  # ldr x1, words + 16
            0x58000182,  # ldr x2, words + 24
            0xD2800808,  # mov x8, 64
            0xD4000001,  # svc 0
            0xD2800000,  # mov x0, 0
            0xD2800BA8,  # mov x8, 93
            0xD4000001,  # svc 0
        ),
    ),
    "arm": Machine(
        emulator=("qemu-arm", "-cpu", "cortex-a7"),
        number=40,
        bits=32,
        start=(
            0xE59F002C,  # ldr r0, words + 0
            0xE3A02001,  # mov r2, 1
            0xE3A03000,  # mov r3, 0
            0xE59FC024,  # ldr r12, words + 4
            0xE12FFF3C,  # blx r12
            0xE3A00001,  # mov r0, 1
            0xE59F101C,  # ldr r1, words + 8
            0xE59F201C,  # ldr r2, words + 12
            0xE3A07004,  # mov r7, 4
            0xEF000000,  # svc 0
            0xE3A00000,  # mov r0, 0
            0xE3A07001,  # mov r7, 1
            0xEF000000,  # svc 0
        ),
        flags=0x05000400,
    ),
    "riscv64": Machine(
        emulator=("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128"),
        number=243,
        bits=64,
        start=(
            0x00000297,  # auipc t0, 0
            0x0382B503,  # ld a0, 56(t0)
            0x00100593,  # li a1, 1
            0x0402B303,  # ld t1, 64(t0)
            0x000300E7,  # jalr t1
            0x00000297,  # auipc t0, 0
            0x00100513,  # li a0, 1
            0x0342B583,  # ld a1, 52(t0)
            0x03C2B603,  # ld a2, 60(t0)
            0x04000893,  # li a7, 64
            0x00000073,  # ecall
            0x00000513,  # li a0, 0
            0x05D00893,  # li a7, 93
            0x00000073,  # ecall
        ),
        flags=5,
    ),
}


def run_bare(
    machine: str, request: MeasureRequest, built: Built, case: Case, folder: Path
) -> None:
    """Run the kernel once on the case's inputs; the output is in the case's storage after it."""
    here = MACHINES[machine]
    require("qemu")
    reset_output(case.output)
    data, output = _data(request, built, case, here.bits // 8)
    image = ElfImage([built.code], machine=machine, runtime=lambda _: None, allocate=_allocate)
    words = (DATA, image.address(f"{built.symbol}_run"), output, len(case.output.block))
    start = struct.pack(f"<{len(here.start)}I", *here.start)
    start += b"".join(w.to_bytes(here.bits // 8, "little") for w in words)
    data = data[:START] + start + data[START + len(start) :]
    program = folder / f"kernel-{machine}"
    program.write_bytes(_program(here, image, data))
    program.chmod(0o700)
    with (folder / "out.bin").open("wb") as out:
        subprocess.run([*here.emulator, str(program)], check=True, timeout=PATIENCE_S, stdout=out)
    case.output.block[...] = memoryview(bytearray((folder / "out.bin").read_bytes()))


def _allocate(size: int) -> tuple[Memory, int]:
    return bytearray(size), CODE


def _data(request: MeasureRequest, built: Built, case: Case, pointer: int) -> tuple[bytes, int]:
    """The array of arguments with what they point to, and the address of the output."""
    packs, task = {p.buffer: p for p in built.packs}, request.task
    storages = [case.inputs[v.name] for v in task.by_role("input")]
    storages += [case.constant(v.name, packs.get(v.name)) for v in task.by_role("constant")]
    storages.append(case.output)
    blocks = [(s.block.tobytes(), s.address - s.block.ctypes.data) for s in storages]
    blocks.append((bytes(built.workspace_bytes), 0))
    at, addresses, parts = BLOCKS, [], []
    for data, offset in blocks:
        addresses.append(at + offset)
        parts.append(data.ljust(-(-len(data) // 64) * 64 + 64, b"\0"))
        at += len(parts[-1])
    pointers = b"".join((DATA + a).to_bytes(pointer, "little") for a in addresses)
    output = DATA + addresses[-2] - blocks[-2][1]
    return pointers.ljust(BLOCKS, b"\0") + b"".join(parts), output


def _program(machine: Machine, image: ElfImage, data: bytes) -> bytes:
    """An executable file: the image at CODE, readable, writable and run, the data at DATA."""
    wide = machine.bits == 64
    header = struct.Struct("<16sHHIQQQIHHHHHH" if wide else "<16sHHIIIIIHHHHHH")
    segment = struct.Struct("<IIQQQQQQ" if wide else "<IIIIIIII")
    code = bytes(image.memory)
    code_at, data_at = PAGE, PAGE + -(-len(code) // PAGE) * PAGE
    ident = bytes([0x7F, *b"ELF", 2 if wide else 1, 1, 1]).ljust(16, b"\0")
    out = header.pack(
        ident, 2, machine.number, 1, DATA + START, header.size, 0, machine.flags, header.size,
        segment.size, 2, 0, 0, 0,
    )  # fmt: skip
    for where, content, at, rights in ((CODE, code, code_at, 7), (DATA, data, data_at, 7)):
        size = len(content)
        fields = (1, rights, at, where, where, size, size, PAGE) if wide else (
            1, at, where, where, size, size, rights, PAGE)  # fmt: skip
        out += segment.pack(*fields)
    return (out.ljust(code_at, b"\0") + code).ljust(data_at, b"\0") + data
