"""A processor that runs functions of a Mach-O executable of 64-bit Arm. In: the file. Out: calls.

Segments lie where the file wants them. Of the system there are memset and memcpy, which are done
here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import unicorn
from unicorn import arm64_const as arm

_SEGMENT, _SYMTAB, _DYSYMTAB = 0x19, 0x2, 0xB
_POINTERS = (6, 7)
"""Types of sections whose words are addresses of the system's functions."""
_SYSTEM, _STACK, _HEAP, _ROOM = 0x7000_0000, 0x6000_0000, 0x4000_0000, 1 << 20
_RETURN = 0xD65F03C0
KEPT = 0x1234_5678
"""What x18 has, which the system keeps to itself."""
ARGUMENTS = (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2, arm.UC_ARM64_REG_X3)


class MachO:
    """An executable in memory."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self.machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.machine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        for start in (_SYSTEM, _STACK, _HEAP):
            self.machine.mem_map(start, _ROOM)
        commands = dict(self._commands())
        self.symbols, names = self._symbols(commands[_SYMTAB])
        self._outside: dict[int, str] = {}
        indirect = struct.unpack_from("<2I", self._data, commands[_DYSYMTAB] + 56)
        for kind, at in self._commands():
            if kind == _SEGMENT:
                self._load(at, names, indirect[0])
        self.machine.hook_add(
            unicorn.UC_HOOK_CODE, self._system, begin=_SYSTEM, end=_SYSTEM + _ROOM - 1
        )
        self._used = _HEAP
        self.machine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are not trapped
        self.machine.reg_write(arm.UC_ARM64_REG_X18, KEPT)

    def block(self, data: bytes) -> int:
        """The address of memory that begins with these bytes, at a multiple of 64."""
        at, self._used = self._used, self._used + -(-len(data) // 64) * 64
        self.machine.mem_write(at, data)
        return at

    def call(self, name: str, *arguments: int) -> int:
        """What a function gives."""
        for register, value in zip(ARGUMENTS, arguments, strict=False):
            self.machine.reg_write(register, value)
        self.machine.reg_write(arm.UC_ARM64_REG_SP, _STACK + _ROOM)
        self.machine.reg_write(arm.UC_ARM64_REG_LR, _SYSTEM)
        self.machine.emu_start(self.symbols[f"_{name}"], _SYSTEM)
        return int(self.machine.reg_read(arm.UC_ARM64_REG_X0))

    def reserved(self) -> int:
        """The register that programs leave alone."""
        return int(self.machine.reg_read(arm.UC_ARM64_REG_X18))

    def word(self, at: int) -> int:
        return int.from_bytes(self.machine.mem_read(at, 8), "little")

    def _commands(self) -> Iterator[tuple[int, int]]:
        """(kind, offset) of every load command."""
        (count,) = struct.unpack_from("<I", self._data, 16)
        at = 32
        for _ in range(count):
            kind, size = struct.unpack_from("<2I", self._data, at)
            yield kind, at
            at += size

    def _symbols(self, at: int) -> tuple[dict[str, int], list[str]]:
        start, count, strings = struct.unpack_from("<3I", self._data, at + 8)
        found, names = {}, []
        for number in range(count):
            name_at, type_, _, _, value = struct.unpack_from(
                "<IBBHQ", self._data, start + 16 * number
            )
            end = self._data.index(b"\0", strings + name_at)
            names.append(self._data[strings + name_at : end].decode())
            if type_ & 0xE == 0xE:
                found[names[-1]] = value
        return found, names

    def _load(self, at: int, names: list[str], indirect: int) -> None:
        address, size, start, nbytes = struct.unpack_from("<4Q", self._data, at + 24)
        (count,) = struct.unpack_from("<I", self._data, at + 64)
        if not nbytes or not address:
            return
        self.machine.mem_map(address, -(-size // 16384) * 16384)
        self.machine.mem_write(address, self._data[start : start + nbytes])
        for number in range(count):
            section = at + 72 + 80 * number
            place, length = struct.unpack_from("<2Q", self._data, section + 32)
            flags, first = struct.unpack_from("<2I", self._data, section + 64)
            if flags & 0xFF not in _POINTERS:
                continue
            for slot in range(length // 8):
                (symbol,) = struct.unpack_from("<I", self._data, indirect + 4 * (first + slot))
                if symbol < len(names) and names[symbol] not in self.symbols:
                    where = _SYSTEM + 4 + 4 * symbol
                    self._outside[where] = names[symbol]
                    self.machine.mem_write(where, _RETURN.to_bytes(4, "little"))
                    self.machine.mem_write(place + 8 * slot, where.to_bytes(8, "little"))

    def _system(self, machine: unicorn.Uc, address: int, _size: int, _data: object) -> None:
        name = self._outside[address]
        to, what, count = (machine.reg_read(register) for register in ARGUMENTS[:3])
        if name == "_memset":
            machine.mem_write(to, bytes([what & 0xFF]) * count)
        elif name == "_memcpy":
            machine.mem_write(to, bytes(machine.mem_read(what, count)))
        else:
            raise AssertionError(f"{name} is called")
