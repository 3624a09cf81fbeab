"""Relocations: what a linker writes into code once it knows where things are.

In: a place's bytes, addresses. Out: the bytes with the address in them. A value that does not fit
its field, and a relocation that our compiler never asks for, raise BuildError. Sources: the psABI
documents of x86-64, AArch64, Arm and RISC-V; P is the place, S + A the symbol and its addend.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from autotune.errors import BuildError


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationSite:
    """A place to be patched: the bytes from there on, its address, that of the symbol, the addend
    (None where it is in the bytes), and ways to what is further away."""

    data: memoryview
    address: int
    symbol: int
    addend: int | None
    slot: Callable[[], int]
    """Address of a word in memory that holds the symbol's address."""
    stub: Callable[[], int]
    """Address of a jump to the symbol, near the code."""

    @property
    def target(self) -> int:
        return self.symbol + (self.addend or 0)

    def word(self, at: int = 0, size: int = 4) -> int:
        if at + size > len(self.data):
            raise BuildError("a relocation reaches beyond its section")
        return int.from_bytes(self.data[at : at + size], "little")

    def put(self, value: int, at: int = 0, size: int = 4) -> None:
        if at + size > len(self.data):
            raise BuildError("a relocation reaches beyond its section")
        self.data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def bits(self, value: int, low: int, count: int) -> None:
        """Replace bits of the instruction here."""
        mask = ((1 << count) - 1) << low
        self.put((self.word() & ~mask) | ((value << low) & mask))


Patch = Callable[[RelocationSite], None]


def fits(value: int, bits: int, step: int = 1) -> int:
    """A signed value, if it has so many bits and is a multiple of `step`."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1) or value % step:
        raise BuildError("object code refers to something too far away, or at an odd place")
    return value


def near_call(p: RelocationSite, bits: int, step: int) -> int:
    """Distance to the symbol, or to a jump to it where it is too far."""
    distance = p.target - p.address
    if not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
        distance = p.stub() + (p.addend or 0) - p.address
    return fits(distance, bits, step)


def absolute(size: int) -> Patch:
    def patch(p: RelocationSite) -> None:
        addend = p.addend if p.addend is not None else p.word(0, size)
        p.put(p.symbol + addend, 0, size)

    return patch


def absolute_32(signed: bool) -> Patch:
    def patch(p: RelocationSite) -> None:
        if signed:
            fits(p.target, 32)
        elif not 0 <= p.target < 1 << 32:
            raise BuildError("object code refers to something too far away")
        p.put(p.target)

    return patch


# ------------------------------------------------------------------------------------------ x86-64


def _x86_relative(p: RelocationSite) -> None:
    p.put(fits(p.target - p.address, 32))


def _x86_call(p: RelocationSite) -> None:
    p.put(near_call(p, 32, 1))


def _x86_slot(p: RelocationSite) -> None:
    p.put(fits(p.slot() + (p.addend or 0) - p.address, 32))


X86_64: dict[int, Patch] = {
    1: absolute(8),
    2: _x86_relative,
    4: _x86_call,
    9: _x86_slot,
    10: absolute_32(signed=False),
    11: absolute_32(signed=True),
    24: lambda p: p.put(p.target - p.address, 0, 8),
    41: _x86_slot,
    42: _x86_slot,
}


# ----------------------------------------------------------------------------------------- aarch64


def _page(address: int) -> int:
    return address >> 12 << 12


def _adrp(p: RelocationSite, target: int) -> None:
    pages = fits(_page(target) - _page(p.address), 33) >> 12
    p.bits(pages, 29, 2)
    p.bits(pages >> 2, 5, 19)


def _low_12(step: int) -> Patch:
    """Patches the low 12 bits of the address, scaled by the size of what is loaded."""

    def patch(p: RelocationSite) -> None:
        low = p.target & 0xFFF
        if low % step:
            raise BuildError("object code loads from an odd place")
        p.bits(low // step, 10, 12)

    return patch


def _arm64_branch(p: RelocationSite) -> None:
    p.bits(near_call(p, 28, 4) >> 2, 0, 26)


AARCH64: dict[int, Patch] = {
    257: absolute(8),
    258: absolute_32(signed=False),
    260: lambda p: p.put(p.target - p.address, 0, 8),
    261: lambda p: p.put(fits(p.target - p.address, 32)),
    275: lambda p: _adrp(p, p.target),
    277: _low_12(1),
    278: _low_12(1),
    280: lambda p: p.bits(fits(p.target - p.address, 21, 4) >> 2, 5, 19),
    282: _arm64_branch,
    283: _arm64_branch,
    284: _low_12(2),
    285: _low_12(4),
    286: _low_12(8),
    299: _low_12(16),
    311: lambda p: _adrp(p, p.slot()),
    312: lambda p: p.bits((p.slot() & 0xFFF) >> 3, 10, 12),
}


# --------------------------------------------------------------------------------------------- arm


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _arm_addend(p: RelocationSite, found: int) -> int:
    return found if p.addend is None else p.addend


def _arm_branch(p: RelocationSite) -> None:
    """BL and B of Arm code; Thumb code (an odd address) is called through a stub."""
    addend = _arm_addend(p, _signed((p.word() & 0xFFFFFF) << 2, 26))
    distance = p.symbol + addend - p.address
    if p.symbol & 1 or not -(1 << 25) <= distance < 1 << 25:
        distance = p.stub() + addend - p.address
    p.bits(fits(distance, 26, 4) >> 2, 0, 24)


def _arm_relative(bits: int) -> Patch:
    def patch(p: RelocationSite) -> None:
        addend = _arm_addend(p, _signed(p.word() & ((1 << bits) - 1), bits))
        p.bits(fits(p.symbol + addend - p.address, bits), 0, bits)

    return patch


def _arm_move(shift: int, relative: bool) -> Patch:
    """MOVW and MOVT: half of an address."""

    def patch(p: RelocationSite) -> None:
        old = p.word()
        addend = _arm_addend(p, _signed((old >> 4 & 0xF000) | (old & 0xFFF), 16))
        value = p.symbol + addend - (p.address if relative else 0) >> shift
        p.bits(value, 0, 12)
        p.bits(value >> 12, 16, 4)

    return patch


def _arm_slot(p: RelocationSite) -> None:
    addend = _arm_addend(p, _signed(p.word(), 32))
    p.put(fits(p.slot() + addend - p.address, 32))


ARM: dict[int, Patch] = {
    0: lambda _: None,
    2: absolute(4),
    3: _arm_relative(32),
    28: _arm_branch,
    29: _arm_branch,
    38: absolute(4),
    42: _arm_relative(31),
    43: _arm_move(0, relative=False),
    44: _arm_move(16, relative=False),
    45: _arm_move(0, relative=True),
    46: _arm_move(16, relative=True),
    96: _arm_slot,
}


# ----------------------------------------------------------------------------------------- riscv64


def _upper(p: RelocationSite, distance: int) -> None:
    """AUIPC: the upper 20 bits, rounded for the signed lower 12."""
    p.bits(fits(distance + 0x800, 32) >> 12, 12, 20)


def _riscv_call(p: RelocationSite) -> None:
    distance = near_call(p, 32, 2)
    _upper(p, distance)
    p.put((p.word(4) & 0xFFFFF) | ((distance & 0xFFF) << 20), 4)


def riscv_lower(p: RelocationSite, distance: int, store: bool) -> None:
    """The lower 12 bits, for the AUIPC that has the upper ones."""
    if not store:
        p.bits(distance, 20, 12)
        return
    p.bits(distance, 7, 5)
    p.bits(distance >> 5, 25, 7)


def _riscv_branch(p: RelocationSite) -> None:
    d = fits(p.target - p.address, 13, 2)
    p.bits((d >> 11 & 1) | (d >> 1 & 0xF) << 1, 7, 5)
    p.bits((d >> 5 & 0x3F) | (d >> 12 & 1) << 6, 25, 7)


def _riscv_jump(p: RelocationSite) -> None:
    d = fits(p.target - p.address, 21, 2)
    p.bits(
        (d >> 12 & 0xFF) | (d >> 11 & 1) << 8 | (d >> 1 & 0x3FF) << 9 | (d >> 20 & 1) << 19, 12, 20
    )


RISCV_PCREL_HI20, RISCV_GOT_HI20 = 23, 20
"""Relocations whose low half names the place of the high one."""
RISCV_PCREL_LO12 = {24: False, 25: True}
"""Kind -> whether it is in a store; the symbol is that of the AUIPC."""

RISCV64: dict[int, Patch] = {
    2: absolute(8),
    16: _riscv_branch,
    17: _riscv_jump,
    18: _riscv_call,
    19: _riscv_call,
    RISCV_GOT_HI20: lambda p: _upper(p, p.slot() + (p.addend or 0) - p.address),
    RISCV_PCREL_HI20: lambda p: _upper(p, p.target - p.address),
    51: lambda _: None,  # permission to shorten code, which is not made use of
    57: lambda p: p.put(fits(p.target - p.address, 32)),
}

PATCHES = {"x86_64": X86_64, "aarch64": AARCH64, "arm": ARM, "riscv64": RISCV64}

_Q = struct.Struct("<Q")
STUB_BYTES = 24
"""Bytes of a jump to a far address, on the machine that needs most."""


def stub_code(machine: str, address: int) -> bytes:
    """A jump to any address, that changes nothing but what calls may change."""
    if machine == "x86_64":
        code = b"\xff\x25\0\0\0\0" + _Q.pack(address)  # jmp [rip]
    elif machine == "aarch64":
        code = struct.pack("<II", 0x58000050, 0xD61F0200) + _Q.pack(address)  # ldr x16, +8; br x16
    elif machine == "arm":
        code = struct.pack("<II", 0xE51FF004, address)  # ldr pc, [pc, -4]
    else:  # auipc t1, 0; ld t1, 16(t1); jr t1; nop
        code = struct.pack("<IIII", 0x00000317, 0x01033303, 0x00030067, 0x13) + _Q.pack(address)
    return code.ljust(STUB_BYTES, b"\0")
