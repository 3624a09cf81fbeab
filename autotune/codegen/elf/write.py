"""ELF files written out. In: sections with their bytes, symbols. Out: a file's bytes.

The structures are those of `objects`; what a file consists of, `relocatable` and `shared` say.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.codegen.elf.objects import MACHINES, Form

NULL, PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOBITS, REL, DYNSYM = (
    0, 1, 2, 3, 4, 5, 6, 8, 9, 11,
)  # fmt: skip
"""Kinds of sections."""
RELOCATABLE, SHARED = 1, 3
"""Kinds of files."""
GLOBAL = 1
"""Binding of symbols."""
NOTYPE, OBJECT, FUNCTION = 0, 1, 2
"""Kinds of symbols."""
_HEADER_BYTES = {4: 52, 8: 64}
_PROGRAM_HEADER_BYTES = {4: 32, 8: 56}

Data = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class OutSection:
    """A section: the fields of its header, and its bytes (none of kind NOBITS)."""

    name: str
    kind: int = PROGBITS
    data: Data = b""
    size: int = 0
    """Bytes of a section without bytes."""
    flags: int = 0
    address: int = 0
    """Where it lies in memory, and in a shared library also in the file."""
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry: int = 0

    @property
    def nbytes(self) -> int:
        return self.size if self.kind == NOBITS else len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a shared library that is mapped as it lies in the file."""

    kind: int
    flags: int
    address: int
    size: int
    alignment: int


@dataclass(slots=True)
class Strings:
    """A table of names, each once."""

    data: bytearray = field(default_factory=lambda: bytearray(1))
    _places: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = len(self.data)
            self.data += name.encode() + b"\0"
        return self._places[name]


def machine_number(machine: str) -> int:
    return next(number for number, (name, _) in MACHINES.items() if name == machine)


def symbol_entry(
    form: Form, name: int, info: tuple[int, int], section: int, place: tuple[int, int]
) -> bytes:
    """A row of a symbol table. `info`: binding and kind; `place`: value and size."""
    fields = [0] * 6
    values = (name, info[0] << 4 | info[1], section, *place)
    for at, number in zip(form.symbol_order, values, strict=True):
        fields[at] = number
    return form.symbol.pack(*fields)


def relocation_entry(form: Form, offset: int, symbol: int, kind: int, addend: int | None) -> bytes:
    """A row of relocations; without an addend, it is in the place itself."""
    info = symbol << form.type_bits | kind
    if addend is None:
        return form.rel.pack(offset, info)
    return form.rela.pack(offset, info, addend)


def header_bytes(form: Form, segments: int) -> int:
    """Bytes of a file before its first section."""
    return _HEADER_BYTES[form.address] + segments * _PROGRAM_HEADER_BYTES[form.address]


def elf_file(
    machine: str,
    kind: int,
    flags: int,
    sections: Sequence[OutSection],
    segments: Sequence[Segment] = (),
) -> bytes:
    """The file: headers, the sections in this order (those of a shared library at their addresses)
    and, last, the table of sections. The sections' names are added behind them."""
    number = machine_number(machine)
    form = MACHINES[number][1]
    names = Strings()
    rows = [OutSection(name="", kind=NULL), *sections]
    places = [names.add(row.name) for row in rows]
    places.append(names.add(".shstrtab"))
    rows.append(OutSection(name=".shstrtab", kind=STRTAB, data=bytes(names.data)))
    at = header_bytes(form, len(segments))
    parts: list[Data] = []
    offsets = []
    for row in rows:
        start = row.address or -(-at // row.alignment) * row.alignment
        parts.append(bytes(start - at))
        offsets.append(start if row.kind != NULL else 0)
        at = start
        if row.kind != NOBITS:
            parts.append(row.data)
            at += len(row.data)
    table = -(-at // 8) * 8
    parts.append(bytes(table - at))
    for row, name, offset in zip(rows, places, offsets, strict=True):
        parts.append(
            form.section.pack(
                name, row.kind, row.flags, row.address, offset, row.nbytes, row.link, row.info,
                row.alignment if row.kind != NULL else 0, row.entry,
            )
        )  # fmt: skip
    size = _HEADER_BYTES[form.address]
    head = form.header.pack(
        b"\x7fELF", 2 if form.address == 8 else 1, 1, 1, kind, number, 1, 0,
        size if segments else 0, table, flags, size,
        _PROGRAM_HEADER_BYTES[form.address] if segments else 0, len(segments),
        form.section.size, len(rows), len(rows) - 1,
    )  # fmt: skip
    programs = b"".join(_program_header(form, segment) for segment in segments)
    return b"".join((head, programs, *parts))


def _program_header(form: Form, segment: Segment) -> bytes:
    at, size = segment.address, segment.size
    if form.address == 8:
        return struct.pack(
            "<IIQQQQQQ", segment.kind, segment.flags, at, at, at, size, size, segment.alignment
        )
    return struct.pack(
        "<IIIIIIII", segment.kind, at, at, at, size, size, segment.flags, segment.alignment
    )
