"""A relocatable object of 64-bit Arm as Mach-O, which linkers for Apple's systems take.

In: an ELF object, blocks of data that it knows by name, public functions, the system. Out: an
object (MH_OBJECT). Kernels are ELF inside of the compiler, whatever the system: calling
conventions agree for pointers and integers, and a target for Apple's systems keeps off the
register x18. Sources: Apple's <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/arm64/reloc.h>,
<mach-o/ranlib.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autotune.codegen.elf.objects import (
    ABSOLUTE,
    EXECUTE,
    UNDEFINED,
    WRITE,
    ElfObject,
    Relocation,
    read_elf,
)
from autotune.errors import BuildError
from autotune.memory import ALIGNMENT, Bytes

MAGIC = struct.pack("<I", 0xFEEDFACF)
_ARM64 = 0x0100000C
_OBJECT = 1
_SEGMENT, _SYMTAB, _DYSYMTAB, _BUILD_VERSION = 0x19, 0x2, 0xB, 0x32
"""Load commands."""
_HEADER = struct.Struct("<7I4x")
_SEGMENT_HEAD = struct.Struct("<2I16s4Q4I")
_SECTION = struct.Struct("<16s16s2Q8I")
_NLIST = struct.Struct("<IBBHQ")
_RELOCATION = struct.Struct("<iI")
_BUILD = struct.Struct("<6I")
_TABLE = struct.Struct("<6I")
_DYNAMIC_TABLE = struct.Struct("<20I")
_RIGHTS = 7
"""Protection of an object's one segment: read, write, run."""
_CODE_FLAGS = 0x80000400
"""Pure instructions."""
_EXTERNAL, _IN_SECTION = 1, 0xE
"""Bits of a symbol's type."""
_UNSIGNED, _SUBTRACTOR, _BRANCH, _PAGE, _PAGE_OFFSET, _SLOT_PAGE, _SLOT_OFFSET = range(7)
"""Types of relocations."""
_PLAIN = {
    275: _PAGE, 277: _PAGE_OFFSET, 278: _PAGE_OFFSET, 284: _PAGE_OFFSET, 285: _PAGE_OFFSET,
    286: _PAGE_OFFSET, 299: _PAGE_OFFSET, 282: _BRANCH, 283: _BRANCH, 311: _SLOT_PAGE,
    312: _SLOT_OFFSET,
}  # fmt: skip
"""ELF's relocations of instructions (psABI of AArch64) -> Mach-O's."""
_RELATIVE_TO_PLACE = (_PAGE, _BRANCH, _SLOT_PAGE)
_ABSOLUTE_64, _RELATIVE_64, _RELATIVE_32 = 257, 260, 261


@dataclass(frozen=True, slots=True, kw_only=True)
class AppleSystem:
    """A platform's number and its oldest release that the object is for (LC_BUILD_VERSION)."""

    platform: int
    oldest: tuple[int, int]


SYSTEMS = {
    "macos": AppleSystem(platform=1, oldest=(11, 0)),
    "ios": AppleSystem(platform=2, oldest=(14, 0)),
}
"""By the word behind `apple-` in a triple, without its version."""


@dataclass(slots=True, kw_only=True)
class _OutPart:
    """A section of the file, into which sections of one kind go. `anchor`: its first symbol."""

    segment: str
    name: str
    flags: int = 0
    data: bytearray = field(default_factory=bytearray)
    alignment: int = 8
    address: int = 0
    relocations: list[bytes] = field(default_factory=list)

    def add(self, data: bytes | memoryview, size: int, alignment: int) -> int:
        """The offset that the bytes come to lie at."""
        self.alignment = max(self.alignment, alignment)
        self.data.extend(bytes(-len(self.data) % alignment))
        at = len(self.data)
        self.data.extend(data)
        self.data.extend(bytes(size - len(data)))
        return at


def macho_object(
    code: bytes, data: Mapping[str, Bytes], public: Collection[str], system: AppleSystem
) -> bytes:
    """`code`: one ELF object, in which `data` are undefined. Raises BuildError for what is not
    64-bit Arm's, or asks for what Mach-O has no relocation for."""
    item = read_elf(code)
    if item.machine != "aarch64":
        raise BuildError(f"Mach-O objects are written for aarch64, got code for {item.machine}")
    return _MachoFile(item, data, public).file(system)


class _MachoFile:
    """Sections, symbols and relocations of one object."""

    def __init__(
        self, item: ElfObject, data: Mapping[str, Bytes], public: Collection[str]
    ) -> None:
        self._item = item
        self._parts = [
            _OutPart(segment="__TEXT", name="__text", flags=_CODE_FLAGS),
            _OutPart(segment="__DATA", name="__const"),  # may hold addresses
            _OutPart(segment="__DATA", name="__data"),
            _OutPart(segment="__TEXT", name="__const", alignment=ALIGNMENT),
        ]
        self._places: dict[int, tuple[int, int]] = {}
        for section in item.sections.values():
            kind = 0 if section.flags & EXECUTE else 2 if section.flags & WRITE else 1
            part = self._parts[kind]
            at = part.add(section.data, section.size, section.alignment)
            self._places[section.index] = (kind, at)
        blocks = {
            name: self._parts[3].add(b.data, b.nbytes, ALIGNMENT) for name, b in data.items()
        }
        at = 0
        for part in self._parts:
            part.address = at = -(-at // part.alignment) * part.alignment
            at += len(part.data)
        self._locals: dict[tuple[int, int], str] = {}
        """(part, offset) -> name of the local symbol there."""
        self._defined: dict[str, tuple[int, int]] = {}
        self._outside: dict[str, None] = {}
        for name, at in blocks.items():
            self._locals[3, at] = f"_{name}"
        self._blocks = {name: (3, at) for name, at in blocks.items()}
        for symbol in item.symbols:
            if symbol.section in self._places and symbol.name in public:
                kind, start = self._places[symbol.section]
                self._defined[f"_{symbol.name}"] = (kind, start + symbol.value)
        self._rows = [row for entry in item.relocations for row in self._relocated(entry)]

    def _relocated(self, entry: Relocation) -> list[tuple[int, int, str, int, bool]]:
        """(part, offset, symbol, type, whether of 8 bytes) of what a relocation becomes."""
        kind, start = self._places[entry.section]
        at = start + entry.offset
        target, rest = self._target(entry)
        if entry.kind in _PLAIN:
            if rest:
                raise BuildError("object code refers to a place beside something of the system's")
            return [(kind, at, target, _PLAIN[entry.kind], False)]
        if entry.kind == _ABSOLUTE_64:
            self._put(kind, at, rest, 8)
            return [(kind, at, target, _UNSIGNED, True)]
        if entry.kind in (_RELATIVE_32, _RELATIVE_64):
            wide = entry.kind == _RELATIVE_64
            self._put(kind, at, rest, 8 if wide else 4)
            here = self._local(kind, at)
            return [(kind, at, here, _SUBTRACTOR, wide), (kind, at, target, _UNSIGNED, wide)]
        raise BuildError(f"object code wants relocation {entry.kind}, which Mach-O does not have")

    def _target(self, entry: Relocation) -> tuple[str, int]:
        """The symbol that is meant, and what is to be added to it."""
        symbol, addend = self._item.symbols[entry.symbol], entry.addend or 0
        if symbol.section == ABSOLUTE:
            raise BuildError("object code refers to an absolute address")
        if symbol.section != UNDEFINED:
            kind, start = self._places[symbol.section]
            return self._local(kind, start + symbol.value + addend), 0
        if symbol.name in self._blocks:
            kind, start = self._blocks[symbol.name]
            return self._local(kind, start + addend), 0
        self._outside[f"_{symbol.name}"] = None
        return f"_{symbol.name}", addend

    def _local(self, kind: int, at: int) -> str:
        return self._locals.setdefault((kind, at), f"ltmp{len(self._locals)}")

    def _put(self, kind: int, at: int, value: int, size: int) -> None:
        self._parts[kind].data[at : at + size] = value.to_bytes(size, "little", signed=True)

    # ------------------------------------------------------------------------------------- file

    def file(self, system: AppleSystem) -> bytes:
        """The whole object."""
        names, symbols, strings = self._symbol_table()
        for kind, at, name, type_, wide in self._rows:
            pcrel = type_ in _RELATIVE_TO_PLACE
            word = names[name] | pcrel << 24 | (3 if wide else 2) << 25 | 1 << 27 | type_ << 28
            self._parts[kind].relocations.append(_RELOCATION.pack(at, word))
        segment_bytes = _SEGMENT_HEAD.size + len(self._parts) * _SECTION.size
        commands = segment_bytes + _BUILD.size + _TABLE.size + _DYNAMIC_TABLE.size
        start = -(-(_HEADER.size + commands) // ALIGNMENT) * ALIGNMENT
        last = self._parts[-1]
        length = last.address + len(last.data)
        at = -(-(start + length) // 8) * 8
        rows: list[bytes] = []
        for part in self._parts:
            count = len(part.relocations)
            rows.append(
                _SECTION.pack(
                    part.name.encode(), part.segment.encode(), part.address, len(part.data),
                    start + part.address, part.alignment.bit_length() - 1, at if count else 0,
                    count, part.flags, 0, 0, 0,
                )
            )  # fmt: skip
            at += count * _RELOCATION.size
        symbols_at, strings_at = at, at + len(symbols)
        head = _HEADER.pack(0xFEEDFACF, _ARM64, 0, _OBJECT, 4, commands, 0)
        out = bytearray(head)
        out += _SEGMENT_HEAD.pack(
            _SEGMENT, segment_bytes, b"", 0, length, start, length, _RIGHTS, _RIGHTS,
            len(self._parts), 0,
        )  # fmt: skip
        out += b"".join(rows)
        major, minor = system.oldest
        out += _BUILD.pack(
            _BUILD_VERSION, _BUILD.size, system.platform, major << 16 | minor << 8, 0, 0
        )
        count = len(symbols) // _NLIST.size
        out += _TABLE.pack(_SYMTAB, _TABLE.size, symbols_at, count, strings_at, len(strings))
        inner, defined = len(self._locals), len(self._defined)
        out += _DYNAMIC_TABLE.pack(
            _DYSYMTAB, _DYNAMIC_TABLE.size, 0, inner, inner, defined, inner + defined,
            count - inner - defined, *(0,) * 12,
        )  # fmt: skip
        for part in self._parts:
            out += bytes(start + part.address - len(out))
            out += part.data
        out += bytes(-len(out) % 8)
        for part in self._parts:
            out += b"".join(part.relocations)
        return bytes(out + symbols + strings)

    def _symbol_table(self) -> tuple[dict[str, int], bytes, bytes]:
        """Numbers of the symbols by name, their entries, and their names: local ones first, then
        those defined for others, then those of others."""
        rows: list[bytes] = []
        strings, names = bytearray(b"\0"), dict[str, int]()
        here = [(name, place, _IN_SECTION) for place, name in self._locals.items()]
        here += [(n, p, _IN_SECTION | _EXTERNAL) for n, p in sorted(self._defined.items())]
        for name, (kind, at), type_ in here:
            names[name] = len(rows)
            address = self._parts[kind].address + at
            rows.append(_NLIST.pack(len(strings), type_, kind + 1, 0, address))
            strings += name.encode() + b"\0"
        for name in sorted(self._outside):
            names[name] = len(rows)
            rows.append(_NLIST.pack(len(strings), _EXTERNAL, 0, 0, 0))
            strings += name.encode() + b"\0"
        return names, b"".join(rows), bytes(strings) + bytes(-len(strings) % 8)


def macho_archive(name: str, code: bytes, public: Collection[str]) -> bytes:
    """A static library of one object, with the index of its symbols that Apple's linkers look in
    (BSD's form)."""
    names = b"".join(f"_{symbol}\0".encode() for symbol in public)
    names += bytes(-len(names) % 8)
    rows, at = b"", 0
    index_bytes = 4 + 8 * len(public) + 4 + len(names)
    index = _member("__.SYMDEF", index_bytes)
    member = len(_AR_MAGIC) + len(index) + index_bytes
    for symbol in public:
        rows += struct.pack("<2I", at, member)
        at += len(symbol) + 2
    table = struct.pack("<I", len(rows)) + rows + struct.pack("<I", len(names)) + names
    return b"".join((_AR_MAGIC, index, table, _member(name, len(code), member), code))


_AR_MAGIC = b"!<arch>\n"
_AR_HEAD_BYTES = 60


def _member(name: str, size: int, start: int = len(_AR_MAGIC)) -> bytes:
    """The header of a member at `start`, its name behind it, so that what it holds begins at a
    multiple of 8."""
    length = len(name) + 1
    length += -(start + _AR_HEAD_BYTES + length) % 8
    fields = f"{f'#1/{length}':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size + length:<10}`\n"
    return fields.encode() + name.encode().ljust(length, b"\0")
