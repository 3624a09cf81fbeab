"""Objects laid out in memory and relocated: what a linker does, for code that is run at once.

In: relocatable objects, memory. Out: addresses of functions. Code, constants and data get pages of
their own; calls and addresses that do not reach go through stubs and slots beside them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.codegen.elf.objects import (
    ABSOLUTE,
    ALLOC,
    EXECUTE,
    LOCAL,
    UNDEFINED,
    WEAK,
    WRITE,
    ElfObject,
    Relocation,
    Section,
    Symbol,
    read_elf,
)
from autotune.codegen.elf.relocations import (
    PATCHES,
    RISCV_GOT_HI20,
    RISCV_PCREL_HI20,
    RISCV_PCREL_LO12,
    STUB_BYTES,
    RelocationSite,
    riscv_lower,
    stub_code,
)
from autotune.errors import BuildError

Memory = mmap.mmap | bytearray
PAGE = max(mmap.PAGESIZE, 4096)
REGIONS = (ALLOC | EXECUTE, ALLOC, ALLOC | WRITE)
"""Kinds of pages, in the order they lie in memory."""
SLOT_BYTES = 8
"""Bytes of an entry of the table of addresses."""


@dataclass(slots=True, kw_only=True)
class Region:
    """Pages of one kind. `extra`: what is added at the end, stubs or slots, by what it is for."""

    start: int
    end: int
    room: int
    extra: dict[int, int] = field(default_factory=dict)

    def added(self, key: int, size: int) -> tuple[int, bool]:
        """Offset of the extra piece for `key`, and whether it is new."""
        if key in self.extra:
            return self.extra[key], False
        at = self.end + len(self.extra) * size
        if at + size > self.room:
            raise BuildError("object code refers to more things than were counted")
        self.extra[key] = at
        return at, True


class ElfImage:
    """Relocated objects in memory that `allocate` gives for a size: a buffer, and the address that
    it is relocated for. `runtime`: address of a function from outside, None where there is none.
    Raises BuildError."""

    def __init__(
        self,
        codes: Sequence[bytes],
        *,
        machine: str,
        runtime: Callable[[str], int | None],
        allocate: Callable[[int], tuple[Memory, int]],
        page_bytes: int = PAGE,
    ) -> None:
        """`page_bytes`: what kinds of pages begin at multiples of."""
        self._machine, self._page_bytes = machine, page_bytes
        self._runtime = runtime
        self._objects = [self._read(code) for code in codes]
        self._places: dict[tuple[int, int], int] = {}
        self.regions = self._lay_out()
        self.memory, self.base = allocate(max(page_bytes, self.regions[-1].room))
        self._copy()
        self._defined = self._define()
        for number, item in enumerate(self._objects):
            self._relocate(number, item)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._defined

    def address(self, symbol: str) -> int:
        """The address of a symbol of the objects. Raises BuildError."""
        if symbol not in self._defined:
            raise BuildError(f"no function {symbol} in the loaded objects")
        return self._defined[symbol]

    # ------------------------------------------------------------------------------------- layout

    def _read(self, code: bytes) -> ElfObject:
        item = read_elf(code)
        if item.machine != self._machine:
            raise BuildError(f"expected object code for {self._machine}, got {item.machine}")
        return item

    def _lay_out(self) -> list[Region]:
        """Offsets of all sections, by kind of page."""
        calls = sum(len(item.relocations) for item in self._objects)
        spare = {REGIONS[0]: calls * STUB_BYTES, REGIONS[1]: calls * SLOT_BYTES, REGIONS[2]: 0}
        regions, at = [], 0
        for kind in REGIONS:
            start = at
            for number, item in enumerate(self._objects):
                for section in item.sections.values():
                    if _kind(section) == kind:
                        at = _aligned(at, section.alignment)
                        self._places[number, section.index] = at
                        at += section.size
            end = _aligned(at, STUB_BYTES + SLOT_BYTES)
            at = _aligned(end + spare[kind], self._page_bytes)
            regions.append(Region(start=start, end=end, room=at))
        return regions

    def _copy(self) -> None:
        for number, item in enumerate(self._objects):
            for section in item.sections.values():
                at = self._places[number, section.index]
                self.memory[at : at + len(section.data)] = section.data

    # ------------------------------------------------------------------------------------ symbols

    def _define(self) -> dict[str, int]:
        """Addresses of what the objects offer."""
        defined: dict[str, int] = {}
        weak: dict[str, int] = {}
        for number, item in enumerate(self._objects):
            for symbol in item.symbols:
                if symbol.section not in item.sections or symbol.binding == LOCAL:
                    continue
                where = self.base + self._places[number, symbol.section] + symbol.value
                if symbol.binding == WEAK:
                    weak.setdefault(symbol.name, where)
                elif symbol.name in defined:
                    raise BuildError(f"{symbol.name} is defined twice in the objects")
                else:
                    defined[symbol.name] = where
        return {**weak, **defined}

    def _value(self, number: int, symbol: Symbol) -> int:
        """Address of what a relocation refers to."""
        if symbol.section == ABSOLUTE:
            raise BuildError("object code refers to an absolute address")
        if symbol.section != UNDEFINED and symbol.binding != WEAK:  # of weak ones, one is taken
            return self.base + self._places[number, symbol.section] + symbol.value
        if symbol.name in self._defined:
            return self._defined[symbol.name]
        found = self._runtime(symbol.name) if symbol.name else 0
        if found is None:
            raise BuildError(f"object code wants {symbol.name!r}, which boards do not offer")
        return found

    # -------------------------------------------------------------------------------- relocations

    def _relocate(self, number: int, item: ElfObject) -> None:
        """Upper halves come first: a lower half is that of an upper one's distance."""
        upper: dict[int, int] = {}
        later = []
        for entry in item.relocations:
            if self._machine == "riscv64" and entry.kind in RISCV_PCREL_LO12:
                later.append(entry)
                continue
            patch = PATCHES[self._machine].get(entry.kind)
            if patch is None:
                raise BuildError(
                    f"object code wants relocation {entry.kind} of {self._machine}, which is not "
                    "known here"
                )
            place = self._site(number, item, entry)
            patch(place)
            if self._machine == "riscv64" and entry.kind == RISCV_PCREL_HI20:
                upper[place.address] = place.target - place.address
            elif self._machine == "riscv64" and entry.kind == RISCV_GOT_HI20:
                upper[place.address] = place.slot() - place.address
        for entry in later:
            place = self._site(number, item, entry)
            if place.symbol not in upper:
                raise BuildError("object code has half an address without the other")
            riscv_lower(place, upper[place.symbol], RISCV_PCREL_LO12[entry.kind])

    def _site(self, number: int, item: ElfObject, entry: Relocation) -> RelocationSite:
        section = item.sections[entry.section]
        start = self._places[number, section.index]
        view = memoryview(self.memory)[start + entry.offset : start + len(section.data)]
        value = self._value(number, item.symbols[entry.symbol])
        return RelocationSite(
            data=view,
            address=self.base + start + entry.offset,
            symbol=value,
            addend=entry.addend,
            slot=lambda: self._slot(value),
            stub=lambda: self._stub(value),
        )

    def _slot(self, value: int) -> int:
        at, fresh = self.regions[1].added(value, SLOT_BYTES)
        if fresh:
            self.memory[at : at + SLOT_BYTES] = value.to_bytes(SLOT_BYTES, "little")
        return self.base + at

    def _stub(self, value: int) -> int:
        at, fresh = self.regions[0].added(value, STUB_BYTES)
        if fresh:
            self.memory[at : at + STUB_BYTES] = stub_code(self._machine, value)
        return self.base + at


def _kind(section: Section) -> int:
    return section.flags & (ALLOC | WRITE | EXECUTE)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
