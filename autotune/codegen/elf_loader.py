"""Object files into this process without a compiler or a linker, for boards too weak to have one.

In: relocatable objects for this machine. Out: addresses of functions. Code, constants and data get
pages of their own, which are never writable and executable at the same time. From outside, objects
may use a few functions of the C, OpenMP and compiler runtimes and nothing else.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.codegen.elf import (
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
from autotune.codegen.elf_patch import (
    PATCHES,
    RISCV_GOT_HI20,
    RISCV_PCREL_HI20,
    RISCV_PCREL_LO12,
    STUB_BYTES,
    Place,
    riscv_lower,
    stub_code,
)
from autotune.errors import BuildError

RUNTIME = {
    "libc.so.6": re.compile(r"mem(cpy|move|set|cmp)|sched_yield"),
    "libm.so.6": re.compile(r"(exp2?|log2?|pow|sin|cos|tanh|erf|fma|fmax|fmin|fmod|sqrt|floor|ceil"
                            r"|trunc|rint|nearbyint|round(even)?)f?"),
    "libgomp.so.1": re.compile(r"GOMP_(parallel|barrier)|omp_get_(thread_num|num_threads)"),
    "libgcc_s.so.1": re.compile(r"__aeabi_\w+|__(fix|float|trunc|extend)\w+|__u?(div|mod)[ds]i3"),
}  # fmt: skip
"""Library -> the functions of it that objects may call."""
MACHINE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
PAGE = mmap.PAGESIZE
REGIONS = (ALLOC | EXECUTE, ALLOC, ALLOC | WRITE)
"""Kinds of pages, in the order they lie in memory."""
_READ, _WRITE, _RUN = 1, 2, 4
_ARM_CACHEFLUSH = 0x0F0002
SLOT_BYTES = 8


def this_machine() -> str:
    """Its name, as objects are for it."""
    machine = platform.machine().lower()
    if machine.startswith("armv"):
        return "arm"
    return MACHINE_NAMES.get(machine, machine)


@dataclass(slots=True, kw_only=True)
class _Region:
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


class ElfLibrary:
    """Loaded objects. Addresses are valid while the library is referenced. `runtime`: address of a
    function from outside, None where there is none."""

    def __init__(
        self,
        codes: Sequence[bytes],
        *,
        machine: str = "",
        runtime: Callable[[str], int | None] | None = None,
    ) -> None:
        self._machine = machine or this_machine()
        self._runtime = runtime or Runtime().address
        self._objects = [self._read(code) for code in codes]
        self._places: dict[tuple[int, int], int] = {}
        self._regions = self._lay_out()
        self._memory = mmap.mmap(
            -1,
            max(PAGE, self._regions[-1].room),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=_READ | _WRITE,
        )
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._copy()
        self._defined = self._define()
        for number, item in enumerate(self._objects):
            self._relocate(number, item)
        self._protect()

    def address(self, symbol: str) -> int:
        """Of a function in the objects. Raises BuildError."""
        found = self._defined.get(symbol)
        if found is None or found[1] != ALLOC | EXECUTE:
            raise BuildError(f"no function {symbol} in the loaded objects")
        return found[0]

    # ------------------------------------------------------------------------------------- layout

    def _read(self, code: bytes) -> ElfObject:
        item = read_elf(code)
        if item.machine != self._machine:
            raise BuildError(f"expected object code for {self._machine}, got {item.machine}")
        return item

    def _lay_out(self) -> list[_Region]:
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
            at = _aligned(end + spare[kind], PAGE)
            regions.append(_Region(start=start, end=end, room=at))
        return regions

    def _copy(self) -> None:
        for number, item in enumerate(self._objects):
            for section in item.sections.values():
                at = self._places[number, section.index]
                self._memory[at : at + len(section.data)] = section.data

    # ------------------------------------------------------------------------------------ symbols

    def _define(self) -> dict[str, tuple[int, int]]:
        """Address and kind of page of what the objects offer."""
        defined: dict[str, tuple[int, int]] = {}
        weak: dict[str, tuple[int, int]] = {}
        for number, item in enumerate(self._objects):
            for symbol in item.symbols:
                if symbol.section not in item.sections or symbol.binding == LOCAL:
                    continue
                where = self._base + self._places[number, symbol.section] + symbol.value
                entry = (where, _kind(item.sections[symbol.section]))
                if symbol.binding == WEAK:
                    weak.setdefault(symbol.name, entry)
                elif symbol.name in defined:
                    raise BuildError(f"{symbol.name} is defined twice in the objects")
                else:
                    defined[symbol.name] = entry
        return {**weak, **defined}

    def _value(self, number: int, symbol: Symbol) -> int:
        """Address of what a relocation refers to."""
        if symbol.section == ABSOLUTE:
            raise BuildError("object code refers to an absolute address")
        if symbol.section != UNDEFINED:
            return self._base + self._places[number, symbol.section] + symbol.value
        if symbol.name in self._defined:
            return self._defined[symbol.name][0]
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
                    "known here; load it with llvmlite"
                )
            place = self._place(number, item, entry)
            patch(place)
            if self._machine == "riscv64" and entry.kind == RISCV_PCREL_HI20:
                upper[place.address] = place.target - place.address
            elif self._machine == "riscv64" and entry.kind == RISCV_GOT_HI20:
                upper[place.address] = place.slot() - place.address
        for entry in later:
            place = self._place(number, item, entry)
            if place.symbol not in upper:
                raise BuildError("object code has half an address without the other")
            riscv_lower(place, upper[place.symbol], RISCV_PCREL_LO12[entry.kind])

    def _place(self, number: int, item: ElfObject, entry: Relocation) -> Place:
        section = item.sections[entry.section]
        start = self._places[number, section.index]
        view = memoryview(self._memory)[start + entry.offset : start + len(section.data)]
        value = self._value(number, item.symbols[entry.symbol])
        return Place(
            data=view,
            address=self._base + start + entry.offset,
            symbol=value,
            addend=entry.addend,
            slot=lambda: self._slot(value),
            stub=lambda: self._stub(value),
        )

    def _slot(self, value: int) -> int:
        at, fresh = self._regions[1].added(value, SLOT_BYTES)
        if fresh:
            self._memory[at : at + SLOT_BYTES] = value.to_bytes(SLOT_BYTES, "little")
        return self._base + at

    def _stub(self, value: int) -> int:
        at, fresh = self._regions[0].added(value, STUB_BYTES)
        if fresh:
            self._memory[at : at + STUB_BYTES] = stub_code(self._machine, value)
        return self._base + at

    # --------------------------------------------------------------------------------- protection

    def _protect(self) -> None:
        """From here on nothing is both written and run."""
        libc = ctypes.CDLL(None, use_errno=True)
        for region, rights in zip(self._regions[:2], (_READ | _RUN, _READ), strict=True):
            size = region.room - region.start
            start = ctypes.c_void_p(self._base + region.start)
            if size and libc.mprotect(start, ctypes.c_size_t(size), rights):
                raise BuildError("the system lets no memory be made executable here")
        if self._machine == this_machine():
            flush_instructions(self._base, self._base + self._regions[0].room)


def flush_instructions(start: int, end: int) -> None:
    """Make the processor see code that was written as data. x86-64 does so by itself."""
    machine, first, last = this_machine(), ctypes.c_void_p(start), ctypes.c_void_p(end)
    if machine == "aarch64":
        ctypes.CDLL("libgcc_s.so.1").__clear_cache(first, last)
    elif machine == "arm":
        ctypes.CDLL(None).syscall(_ARM_CACHEFLUSH, first, last, 0)
    elif machine == "riscv64":
        ctypes.CDLL(None).__riscv_flush_icache(first, last, ctypes.c_ulong(0))


class Runtime:
    """Functions outside of the objects."""

    def __init__(self) -> None:
        self._libraries: dict[str, ctypes.CDLL] = {}

    def address(self, name: str) -> int | None:
        """Of a function that objects may call; None where there is none. Raises BuildError where
        the library it is in is missing."""
        for library, offered in RUNTIME.items():
            if offered.fullmatch(name):
                function = getattr(self._library(library), name, None)
                if function is not None:
                    return ctypes.cast(function, ctypes.c_void_p).value
        return None

    def _library(self, name: str) -> ctypes.CDLL:
        if name not in self._libraries:
            try:
                self._libraries[name] = ctypes.CDLL(name)
            except OSError:
                package = name.partition(".")[0].replace("_", "-")
                raise BuildError(f"object code needs {name}; install {package}") from None
        return self._libraries[name]


def _kind(section: Section) -> int:
    return section.flags & (ALLOC | WRITE | EXECUTE)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
