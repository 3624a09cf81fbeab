"""Relocatable objects and a block of data as a shared library, without a linker.

In: objects of one machine, data, names. Out: a shared library (ET_DYN) that the system's loader
takes: its functions by name, and what it wants from libc and libm.

The file lies in memory as it is: headers, data, code, constants with slots for addresses (written
by the loader, then protected), data that is written, tables of the dynamic linker. Sources: the
System V gABI and the psABI documents of the four machines.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.codegen.elf.image import SLOT_BYTES, ElfImage
from autotune.codegen.elf.objects import (
    ALLOC,
    EXECUTE,
    MACHINES,
    WRITE,
    ElfObject,
    Form,
    Relocation,
    read_elf,
)
from autotune.codegen.elf.relocatable import DATA_SECTION, object_flags
from autotune.codegen.elf.relocations import STUB_BYTES, RelocationSite
from autotune.codegen.elf.write import (
    DYNAMIC,
    DYNSYM,
    FUNCTION,
    GLOBAL,
    HASH,
    NOTYPE,
    REL,
    RELA,
    SHARED,
    STRTAB,
    OutSection,
    Segment,
    Strings,
    elf_file,
    machine_number,
    relocation_entry,
    symbol_entry,
)
from autotune.errors import BuildError
from autotune.memory import Bytes

_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
"""Kinds of segments."""
_R, _W, _X = 4, 2, 1
"""Flags of segments."""
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 1, 4, 5, 6, 10, 11, 14
_RELA_TAGS, _REL_TAGS = (7, 8, 9), (17, 18, 19)
"""Tags of the table for the dynamic linker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A machine's relocation types, for its dynamic linker."""

    relative: int
    """Add where the library lies."""
    symbol: int
    """The address of a symbol."""
    absolute: frozenset[int]
    """Relocations of objects that hold an address."""
    page_bytes: int = 4096
    """The largest page of its systems."""


_MACHINES = {
    "x86_64": _Machine(relative=8, symbol=6, absolute=frozenset((1,))),
    "aarch64": _Machine(
        relative=1027, symbol=1025, absolute=frozenset((257,)), page_bytes=1 << 16
    ),
    "arm": _Machine(relative=23, symbol=21, absolute=frozenset((2, 38)), page_bytes=1 << 16),
    "riscv64": _Machine(relative=3, symbol=2, absolute=frozenset((2,))),
}
_OUTSIDE = {"x86_64": 1 << 46, "aarch64": 1 << 46, "arm": 0xF0000000, "riscv64": 1 << 46}
"""Where functions from outside are said to be while the library is laid out: out of reach of any
call, which so goes through a stub."""
_OUTSIDE_STEP = 16
"""Bytes between the addresses that stand for symbols of other libraries."""


def shared_library(
    name: str,
    codes: Sequence[bytes],
    data: Mapping[str, Bytes],
    public: Sequence[str],
    needed: Sequence[str],
) -> bytes:
    """A library of that name (its soname). `data`: blocks that the objects know by name;
    `public`: functions that can be called; `needed`: libraries that have the rest. Raises
    BuildError."""
    return _Library(codes, data).file(name, public, needed)


class _Library(ElfImage):
    """Objects laid out at the addresses of a file, and what is left to the dynamic linker."""

    def __init__(self, codes: Sequence[bytes], data: Mapping[str, Bytes]) -> None:
        machine = read_elf(codes[0]).machine
        self._kind = _MACHINES[machine]
        self._form: Form = MACHINES[machine_number(machine)][1]
        self._flags = object_flags(codes[0])
        self._data = data
        self._data_places: dict[str, int] = {}
        at = self._kind.page_bytes
        for name, block in data.items():
            self._data_places[name] = at
            at = self._paged(at + block.nbytes)
        self._outside: dict[str, int] = {}
        self._slots: dict[int, int] = {}
        """Slot -> what it holds."""
        self._absolute: dict[int, int] = {}
        """Place -> the address that is written there."""
        super().__init__(
            codes,
            machine=machine,
            runtime=self._from_outside,
            allocate=lambda size: (bytearray(size), at),
            page_bytes=self._kind.page_bytes,
        )

    def file(self, name: str, public: Sequence[str], needed: Sequence[str]) -> bytes:
        """The whole library."""
        tables = _DynamicTables(self._form, [(s, self.address(s)) for s in public], self._outside)
        names = [tables.strings.add(library) for library in needed]
        soname = tables.strings.add(name)
        code, constants, written = self.regions
        dynamic_at = self.base + written.room
        relocations = self._relocations(tables)
        rows = [(_NEEDED, n) for n in names] + [(_SONAME, soname)]
        dynamic_bytes = (len(rows) + 9) * 2 * self._form.address
        at = tables_at = self._paged(dynamic_at + dynamic_bytes)
        sections = [*self._sections()]
        first = len(sections) + 2
        added = []
        for made in tables.sections(relocations, self._machine, first):
            at = -(-at // 8) * 8
            added.append(_at(made, at))
            at += made.nbytes
        symbols, strings, hashed, moved = added
        tags = _REL_TAGS if moved.kind == REL else _RELA_TAGS
        rows += [
            (_HASH, hashed.address), (_STRTAB, strings.address), (_SYMTAB, symbols.address),
            (_STRSZ, strings.nbytes), (_SYMENT, symbols.entry),
            *zip(tags, (moved.address, moved.nbytes, moved.entry), strict=True), (0, 0),
        ]  # fmt: skip
        word = "I" if self._form.address == 4 else "Q"
        dynamic = OutSection(
            name=".dynamic", kind=DYNAMIC, flags=ALLOC | WRITE, address=dynamic_at,
            data=b"".join(struct.pack(f"<2{word}", *row) for row in rows),
            link=first + 1, alignment=8, entry=2 * self._form.address,
        )  # fmt: skip
        page, base = self._kind.page_bytes, self.base
        spans = (
            (_LOAD, _R, 0, base),
            (_LOAD, _R | _X, base + code.start, base + code.room),
            (_LOAD, _R | _W, base + constants.start, base + constants.room),
            (_LOAD, _R | _W, base + written.start, dynamic_at + dynamic.nbytes),
            (_LOAD, _R, tables_at, at),
            (_DYNAMIC, _R | _W, dynamic_at, dynamic_at + dynamic.nbytes),
            (_RELRO, _R, base + constants.start, base + constants.room),
            (_STACK, _R | _W, 0, 0),
        )
        segments = [
            Segment(
                kind=kind, flags=flags, address=start, size=end - start,
                alignment=page if kind == _LOAD else 8,
            )
            for kind, flags, start, end in spans
            if end > start or kind == _STACK
        ]  # fmt: skip
        return elf_file(self._machine, SHARED, self._flags, [*sections, dynamic, *added], segments)

    # ------------------------------------------------------------------------------- relocations

    def _from_outside(self, name: str) -> int | None:
        if name in self._data_places:
            return self._data_places[name]
        step = len(self._outside) * _OUTSIDE_STEP
        return self._outside.setdefault(name, _OUTSIDE[self._machine] + step)

    def _site(self, number: int, item: ElfObject, entry: Relocation) -> RelocationSite:
        site = super()._site(number, item, entry)
        if entry.kind in self._kind.absolute:
            addend = entry.addend if entry.addend is not None else site.word()
            self._absolute[site.address] = site.symbol + addend
        return site

    def _slot(self, value: int) -> int:
        at = super()._slot(value)
        self._slots[at] = value
        return at

    def _stub(self, value: int) -> int:
        at, fresh = self.regions[0].added(value, STUB_BYTES)
        if fresh:
            code = slot_jump(self._machine, self.base + at, self._slot(value))
            self.memory[at : at + STUB_BYTES] = code.ljust(STUB_BYTES, b"\0")
        return self.base + at

    def _relocations(self, tables: _DynamicTables) -> bytes:
        """The relocations that the loader makes. Arm's have no addends: these are in their
        places."""
        names = {address: name for name, address in self._outside.items()}
        out = []
        _, constants, _ = self.regions
        for at, value in {**self._slots, **self._absolute}.items():
            if at < self.base + constants.start:
                raise BuildError("object code holds an address among its instructions")
            if value in names:
                row = (at, tables.number(names[value]), self._kind.symbol, 0)
                start = at - self.base
                self.memory[start : start + SLOT_BYTES] = bytes(SLOT_BYTES)
            else:
                row = (at, 0, self._kind.relative, value)
            addend = None if self._machine == "arm" else row[3]
            out.append(relocation_entry(self._form, row[0], row[1], row[2], addend))
        return b"".join(out)

    # ---------------------------------------------------------------------------------- sections

    def _sections(self) -> list[OutSection]:
        """Data, code, constants and what is written, where they lie."""
        out = [
            OutSection(
                name=DATA_SECTION, data=block.data, flags=ALLOC, address=self._data_places[name],
                alignment=self._kind.page_bytes,
            )
            for name, block in self._data.items()
        ]  # fmt: skip
        kinds = (
            (".text", ALLOC | EXECUTE),
            (".data.rel.ro", ALLOC | WRITE),
            (".data", ALLOC | WRITE),
        )
        for (name, flags), region in zip(kinds, self.regions, strict=True):
            if region.room > region.start:
                out.append(
                    OutSection(
                        name=name, data=bytes(self.memory[region.start : region.room]),
                        flags=flags, address=self.base + region.start, alignment=64,
                    )
                )  # fmt: skip
        return out

    def _paged(self, at: int) -> int:
        return -(-at // self._kind.page_bytes) * self._kind.page_bytes


class _DynamicTables:
    """Names for the dynamic linker: functions of the library, then those from outside."""

    def __init__(
        self, form: Form, public: Sequence[tuple[str, int]], outside: Mapping[str, int]
    ) -> None:
        self._form, self.strings = form, Strings()
        self._names = [*(name for name, _ in public), *outside]
        rows = [(name, FUNCTION, 1, address) for name, address in public]
        rows += [(name, NOTYPE, 0, 0) for name in outside]
        self._rows = [bytes(form.symbol.size)] + [
            symbol_entry(form, self.strings.add(name), (GLOBAL, kind), section, (address, 0))
            for name, kind, section, address in rows
        ]

    def number(self, name: str) -> int:
        return self._names.index(name) + 1

    def sections(self, relocations: bytes, machine: str, first: int) -> list[OutSection]:
        """Symbols, strings, hash table, relocations. `first`: the number of the symbols' one."""
        form, bare = self._form, machine == "arm"
        return [
            OutSection(
                name=".dynsym", kind=DYNSYM, flags=ALLOC, data=b"".join(self._rows),
                link=first + 1, info=1, alignment=8, entry=form.symbol.size,
            ),
            OutSection(name=".dynstr", kind=STRTAB, flags=ALLOC, data=bytes(self.strings.data)),
            OutSection(
                name=".hash", kind=HASH, flags=ALLOC, data=_hash_table(self._names), link=first,
                alignment=8, entry=4,
            ),
            OutSection(
                name=".rel.dyn" if bare else ".rela.dyn", kind=REL if bare else RELA, flags=ALLOC,
                data=relocations, link=first, alignment=8,
                entry=(form.rel if bare else form.rela).size,
            ),
        ]  # fmt: skip


def _at(section: OutSection, address: int) -> OutSection:
    return OutSection(
        name=section.name, kind=section.kind, data=section.data, flags=section.flags,
        address=address, link=section.link, info=section.info, alignment=section.alignment,
        entry=section.entry,
    )  # fmt: skip


def _hash_table(names: Sequence[str]) -> bytes:
    """The gABI's hash table: buckets, then chains."""
    count = max(1, len(names))
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % count
        chains[number], buckets[bucket] = buckets[bucket], number
    words = [count, len(chains), *buckets, *chains]
    return struct.pack(f"<{len(words)}I", *words)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def slot_jump(machine: str, at: int, slot: int) -> bytes:
    """A jump, itself at `at`, to where the slot says."""
    distance = slot - at
    if machine == "x86_64":
        return b"\xff\x25" + struct.pack("<i", distance - 6)  # jmp [rip + ...]
    if machine == "aarch64":  # adrp x16; ldr x17, [x16, low]; br x17
        pages = (slot >> 12) - (at >> 12)
        adrp = 0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        return struct.pack("<III", adrp, 0xF9400211 | (slot & 0xFFF) >> 3 << 10, 0xD61F0220)
    if machine == "arm":  # ldr ip, [pc, 4]; add ip, pc, ip; ldr pc, [ip]; the distance
        return struct.pack("<IIIi", 0xE59FC004, 0xE08FC00C, 0xE59CF000, distance - 12)
    upper = distance + 0x800 >> 12 & 0xFFFFF  # auipc t1; ld t1, low(t1); jr t1
    return struct.pack(
        "<III", 0x00000317 | upper << 12, 0x00033303 | (distance & 0xFFF) << 20, 0x00030067
    )
