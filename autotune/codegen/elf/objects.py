"""Relocatable ELF objects, read strictly. In: bytes that anybody may have made. Out: an ElfObject.

Little-endian objects of the four machines that boards have. Every offset, size, index and name is
checked before it is used; whatever our own compiler never writes is refused. Raises BuildError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.errors import BuildError

MAX_SECTIONS = 4096
MAX_ENTRIES = 1 << 20
MAX_ALIGNMENT = 4096
MAX_LOADED_BYTES = 256 << 20
"""Bounds of an object that may be somebody else's; chosen far above those of kernels."""
WRITE, ALLOC, EXECUTE = 1, 2, 4
"""Flags of sections, special section numbers, bindings and kinds from here on (System V ABI)."""
UNDEFINED, ABSOLUTE = 0, 0xFFF1
LOCAL, WEAK = 0, 2
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
_INIT_ARRAYS = (14, 15, 16)
_TLS, _COMPRESSED = 0x400, 0x800
_TLS_SYMBOL, _INDIRECT = 6, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Layouts of the structures in a class of files: 64 bits or 32."""

    address: int
    """Bytes of one."""
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    symbol_order: tuple[int, int, int, int, int]
    """Places of name, info, section, value and size."""
    rel: struct.Struct
    rela: struct.Struct
    type_bits: int


ELF64 = Form(
    address=8,
    header=struct.Struct("<4sBBB9xHHIQQQIHHHHHH"),
    section=struct.Struct("<IIQQQQIIQQ"),
    symbol=struct.Struct("<IBBHQQ"),
    symbol_order=(0, 1, 3, 4, 5),
    rel=struct.Struct("<QQ"),
    rela=struct.Struct("<QQq"),
    type_bits=32,
)
ELF32 = Form(
    address=4,
    header=struct.Struct("<4sBBB9xHHIIIIIHHHHHH"),
    section=struct.Struct("<IIIIIIIIII"),
    symbol=struct.Struct("<IIIBBH"),
    symbol_order=(0, 3, 5, 1, 2),
    rel=struct.Struct("<II"),
    rela=struct.Struct("<IIi"),
    type_bits=8,
)
MACHINES = {
    62: ("x86_64", ELF64),
    183: ("aarch64", ELF64),
    243: ("riscv64", ELF64),
    40: ("arm", ELF32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One that is loaded. `data` is shorter than `size` where the rest is zeros."""

    index: int
    name: str
    flags: int
    alignment: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """`section`: its index, UNDEFINED, or ABSOLUTE."""

    name: str
    binding: int
    section: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A place in a loaded section. `addend` is None where it is in the place itself."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfObject:
    """`sections` by index; those that are not loaded are left out, and what refers to them."""

    machine: str
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """A section header as it is in the file."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def read_elf(code: bytes) -> ElfObject:
    """A relocatable object, read and checked. Raises BuildError where it is not a sound one."""
    machine, form, headers, names = _read_headers(code)
    sections = {
        number: _section(code, number, header, _text(names, header.name))
        for number, header in enumerate(headers)
        if _is_loaded(header)
    }
    if sum(s.size + s.alignment for s in sections.values()) > MAX_LOADED_BYTES:
        raise BuildError(f"object code takes more than {MAX_LOADED_BYTES} bytes of memory")
    tables = [n for n, header in enumerate(headers) if header.kind == _SYMTAB]
    if len(tables) != 1:
        raise BuildError(f"expected an object with one symbol table, got {len(tables)}")
    symbols = tuple(_symbols(code, form, headers, headers[tables[0]], sections))
    relocations: list[Relocation] = []
    for header in headers:
        if header.kind not in (_REL, _RELA) or header.info not in sections:
            continue
        section = sections[header.info]
        if header.link != tables[0]:
            raise BuildError(f"the relocations of {section.name} name no symbol table")
        relocations += _relocations(code, form, header, section, len(symbols))
    return ElfObject(
        machine=machine,
        sections=sections,
        symbols=symbols,
        relocations=tuple(relocations),
    )


def _read_headers(code: bytes) -> tuple[str, Form, list[_Header], bytes]:
    """Machine, form, section headers, and the table of their names."""
    if len(code) < ELF32.header.size or code[:4] != b"\x7fELF":
        raise BuildError("expected an ELF object, got something else")
    number = int.from_bytes(code[18:20], "little")
    if number not in MACHINES:
        raise BuildError(f"expected object code of {_known()}, got ELF machine {number}")
    machine, form = MACHINES[number]
    if len(code) < form.header.size:
        raise BuildError("an ELF object ends within its header")
    fields = form.header.unpack_from(code)
    width, order, version, kind = fields[1], fields[2], fields[3], fields[4]
    if (width, order, version, kind) != (2 if form is ELF64 else 1, 1, 1, 1):
        raise BuildError(f"expected a little-endian relocatable object for {machine}")
    start, entry, count, at = fields[9], fields[14], fields[15], fields[16]
    if entry != form.section.size or not 0 < count <= MAX_SECTIONS or at >= count:
        raise BuildError("the section table of an ELF object is malformed")
    table = _cut(code, start, entry * count, "section table")
    headers = [_header(form, table, n) for n in range(count)]
    names = _cut(code, headers[at].offset, headers[at].size, "section names")
    return machine, form, headers, names


def _known() -> str:
    return ", ".join(name for name, _ in MACHINES.values())


def _header(form: Form, table: bytes, number: int) -> _Header:
    name, kind, flags, _, offset, size, link, info, alignment, entry = form.section.unpack_from(
        table, number * form.section.size
    )
    return _Header(
        name=name, kind=kind, flags=flags, offset=offset, size=size, link=link, info=info,
        alignment=alignment, entry=entry,
    )  # fmt: skip


def _is_loaded(header: _Header) -> bool:
    """Code and data; tables for unwinding are of no use, kernels never raise."""
    if not header.flags & ALLOC:
        return False
    if header.flags & (_TLS | _COMPRESSED) or header.kind in _INIT_ARRAYS:
        raise BuildError("object code may not have constructors or thread-local data")
    return header.kind in (_PROGBITS, _NOBITS)


def _section(code: bytes, number: int, header: _Header, name: str) -> Section:
    alignment = max(1, header.alignment)
    if alignment & (alignment - 1) or alignment > MAX_ALIGNMENT:
        raise BuildError(f"section {name} wants an alignment of {header.alignment} bytes")
    if header.flags & WRITE and header.flags & EXECUTE:
        raise BuildError(f"section {name} is both written and run")
    if header.size > MAX_LOADED_BYTES:
        raise BuildError(f"section {name} takes {header.size} bytes")
    empty = header.kind == _NOBITS
    data = b"" if empty else _cut(code, header.offset, header.size, f"section {name}")
    return Section(
        index=number, name=name, flags=header.flags, alignment=alignment, size=header.size,
        data=data,
    )  # fmt: skip


def _symbols(
    code: bytes, form: Form, headers: list[_Header], table: _Header, sections: dict[int, Section]
) -> Iterator[Symbol]:
    if table.link >= len(headers):
        raise BuildError("the symbol table of an ELF object names no string table")
    strings = _cut(code, headers[table.link].offset, headers[table.link].size, "symbol names")
    for fields in _entries(code, table, form.symbol, "symbol table"):
        name, info, section, value, size = (fields[n] for n in form.symbol_order)
        kind, text = info & 15, _text(strings, name)
        if kind in (_TLS_SYMBOL, _INDIRECT):
            raise BuildError(f"symbol {text!r} is of a kind that is not loaded")
        if section in sections and value + size > sections[section].size:
            raise BuildError(f"symbol {text!r} lies outside its section")
        if section not in sections and section not in (UNDEFINED, ABSOLUTE):
            if section >= len(headers):
                raise BuildError(f"symbol {text!r} is in a section that does not exist")
            section, text = ABSOLUTE, ""  # of something that is not loaded
        yield Symbol(name=text, binding=info >> 4, section=section, value=value)


def _relocations(
    code: bytes, form: Form, header: _Header, section: Section, symbols: int
) -> Iterator[Relocation]:
    """`symbols`: how many there are."""
    layout = form.rela if header.kind == _RELA else form.rel
    for offset, info, *addend in _entries(code, header, layout, "relocations"):
        symbol, kind = info >> form.type_bits, info & ((1 << form.type_bits) - 1)
        if symbol >= symbols or offset >= len(section.data):
            raise BuildError(f"a relocation of {section.name} is out of bounds")
        yield Relocation(
            section=section.index,
            offset=offset,
            kind=kind,
            symbol=symbol,
            addend=addend[0] if addend else None,
        )


def _entries(
    code: bytes, header: _Header, layout: struct.Struct, what: str
) -> Iterator[tuple[int, ...]]:
    if header.entry != layout.size or header.size % layout.size:
        raise BuildError(f"the {what} of an ELF object are malformed")
    if header.size // layout.size > MAX_ENTRIES:
        raise BuildError(f"the {what} of an ELF object have more than {MAX_ENTRIES} entries")
    return layout.iter_unpack(_cut(code, header.offset, header.size, what))


def _cut(code: bytes, offset: int, size: int, what: str) -> bytes:
    if offset + size > len(code):
        raise BuildError(f"the {what} of an ELF object lie outside of it")
    return code[offset : offset + size]


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at) if at < len(strings) else -1
    if end < 0:
        raise BuildError("a name of an ELF object lies outside of its table")
    return strings[at:end].decode("ascii", "replace")
