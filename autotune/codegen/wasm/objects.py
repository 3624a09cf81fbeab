"""WebAssembly objects as LLVM writes them, read. In: an object's bytes. Out: a WasmObject.

The form is that of the tool conventions (WebAssembly/tool-conventions, Linking.md): a module whose
custom sections name its symbols, and say where their numbers stand in code and data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.codegen.wasm.leb import LebReader
from autotune.errors import BuildError

MAGIC = b"\0asm\1\0\0\0"
CUSTOM, TYPES, IMPORTS, FUNCTIONS, TABLES, MEMORIES, GLOBALS, EXPORTS = range(8)
ELEMENTS, CODE, DATA = 9, 10, 11
FUNCTION, TABLE, MEMORY, GLOBAL = range(4)
"""Kinds of imports and exports."""
FUNCTION_SYMBOL, DATA_SYMBOL, GLOBAL_SYMBOL, SECTION_SYMBOL, _TAG, TABLE_SYMBOL = range(6)
WEAK, UNDEFINED, NAMED = 1, 0x10, 0x40
"""Flags of symbols."""
FUNCTION_LEB, TABLE_SLEB, TABLE_I32, MEMORY_LEB, MEMORY_SLEB, MEMORY_I32, TYPE_LEB, GLOBAL_LEB = (
    range(8)
)
TABLE_NUMBER_LEB = 20
"""Kinds of relocations."""
WITH_ADDEND = frozenset((MEMORY_LEB, MEMORY_SLEB, MEMORY_I32))
_SEGMENTS, _SYMBOLS = 5, 8
"""Parts of the linking section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmSymbol:
    """A function by its number in the object, or data by segment and offset."""

    kind: int
    name: str
    weak: bool = False
    defined: bool = True
    index: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmPatch:
    """A place that wants a symbol's number. `at`: offset inside a function's body or a segment."""

    kind: int
    at: int
    index: int
    """A symbol's number, or a type's."""
    addend: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmPiece:
    """A function's body, or a segment of data, with what is to be filled in."""

    data: bytes = field(repr=False)
    patches: tuple[WasmPatch, ...] = ()
    kind: int = 0
    """The number of a function's type."""
    align: int = 1
    """What the address of a segment is a multiple of."""


_I32_CONST = 0x41


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmObject:
    """Everything that is linked of an object."""

    types: tuple[bytes, ...]
    imported: tuple[tuple[str, int], ...]
    """Name and type of each function from outside; the object's own are numbered behind them."""
    functions: tuple[WasmPiece, ...]
    segments: tuple[WasmPiece, ...]
    symbols: tuple[WasmSymbol, ...]


class _Sections:
    """The sections of an object by number, and custom ones by name: (ordinal, payload)."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise BuildError("expected a WebAssembly object of version 1")
        self.plain: dict[int, tuple[int, bytes]] = {}
        self.custom: dict[str, bytes] = {}
        reader, ordinal = LebReader(data, len(MAGIC)), 0
        while reader:
            kind, payload = reader.byte(), reader.block()
            if kind == CUSTOM:
                inner = LebReader(payload)
                name = inner.text()
                self.custom[name] = payload[inner.at :]
            else:
                self.plain[kind] = (ordinal, payload)
            ordinal += 1

    def reader(self, kind: int) -> LebReader:
        return LebReader(self.plain[kind][1] if kind in self.plain else b"\0")


def read_wasm(data: bytes) -> WasmObject:
    """Raises BuildError for what is no such object, or has what ours have not."""
    found = _Sections(data)
    types, imported = _types(found.reader(TYPES)), _imports(found.reader(IMPORTS))
    kinds = found.reader(FUNCTIONS)
    numbers = [kinds.number() for _ in range(kinds.number())]
    bodies = _bodies(found.reader(CODE))
    blocks = _blocks(found.reader(DATA))
    aligns, symbols = _linking(found.custom.get("linking", b""), [name for name, _ in imported])
    patches = _patches(found.custom.get("reloc.CODE", b""))
    functions = tuple(
        WasmPiece(data=body, kind=kind, patches=_within(patches, at, len(body)))
        for (at, body), kind in zip(bodies, numbers, strict=True)
    )
    patches = _patches(found.custom.get("reloc.DATA", b""))
    segments = tuple(
        WasmPiece(data=body, align=align, patches=_within(patches, at, len(body)))
        for (at, body), align in zip(blocks, aligns, strict=True)
    )
    return WasmObject(
        types=types, imported=imported, functions=functions, segments=segments, symbols=symbols
    )


def _types(reader: LebReader) -> tuple[bytes, ...]:
    out = []
    for _ in range(reader.number()):
        start = reader.at
        reader.byte()
        for _ in range(2):
            reader.block()
        out.append(reader.data[start : reader.at])
    return tuple(out)


def _imports(reader: LebReader) -> tuple[tuple[str, int], ...]:
    """Functions. Memory, table and the stack's pointer are imported by every object."""
    out = []
    for _ in range(reader.number()):
        reader.text()
        name, kind = reader.text(), reader.byte()
        if kind == FUNCTION:
            out.append((name, reader.number()))
        elif kind == GLOBAL:
            reader.take(2)
        else:
            if kind == TABLE:
                reader.byte()
            for _ in range(2 if reader.byte() & 1 else 1):
                reader.number()
    return tuple(out)


def _bodies(reader: LebReader) -> list[tuple[int, bytes]]:
    """Bodies of functions, and where they begin in the section."""
    out = []
    for _ in range(reader.number()):
        body = reader.block()
        out.append((reader.at - len(body), body))
    return out


def _blocks(reader: LebReader) -> list[tuple[int, bytes]]:
    """Contents of segments, and where they begin in the section."""
    out = []
    for _ in range(reader.number()):
        if reader.number() != 0:
            raise BuildError("a WebAssembly object has data of another memory")
        if reader.byte() == _I32_CONST:  # where it would lie if it were alone
            reader.number()
        reader.byte()
        body = reader.block()
        out.append((reader.at - len(body), body))
    return out


def _linking(payload: bytes, imported: list[str]) -> tuple[list[int], tuple[WasmSymbol, ...]]:
    """Alignments of the segments, and the symbols."""
    reader = LebReader(payload)
    aligns: list[int] = []
    symbols: tuple[WasmSymbol, ...] = ()
    reader.number()  # version
    while reader:
        kind, part = reader.byte(), LebReader(reader.block())
        if kind == _SEGMENTS:
            for _ in range(part.number()):
                part.text()
                aligns.append(1 << part.number())
                part.number()
        elif kind == _SYMBOLS:
            symbols = tuple(_symbol(part, imported) for _ in range(part.number()))
    return aligns, symbols


def _symbol(part: LebReader, imported: list[str]) -> WasmSymbol:
    kind, flags = part.byte(), part.number()
    defined, weak = not flags & UNDEFINED, bool(flags & WEAK)
    if kind == DATA_SYMBOL:
        name, index, offset = part.text(), 0, 0
        if defined:
            index, offset, _ = part.number(), part.number(), part.number()
        return WasmSymbol(
            kind=kind, name=name, weak=weak, defined=defined, index=index, offset=offset
        )
    index = part.number()
    if kind == SECTION_SYMBOL:
        return WasmSymbol(kind=kind, name="", index=index)
    if defined or flags & NAMED:
        name = part.text()
    else:
        name = imported[index] if kind == FUNCTION_SYMBOL else ""
    return WasmSymbol(kind=kind, name=name, weak=weak, defined=defined, index=index)


def _patches(payload: bytes) -> list[WasmPatch]:
    reader = LebReader(payload)
    out: list[WasmPatch] = []
    if not payload:
        return out
    reader.number()  # of the section
    for _ in range(reader.number()):
        kind, at, index = reader.byte(), reader.number(), reader.number()
        addend = reader.signed() if kind in WITH_ADDEND else 0
        out.append(WasmPatch(kind=kind, at=at, index=index, addend=addend))
    return out


def _within(patches: list[WasmPatch], start: int, length: int) -> tuple[WasmPatch, ...]:
    return tuple(
        WasmPatch(kind=p.kind, at=p.at - start, index=p.index, addend=p.addend)
        for p in patches
        if start <= p.at < start + length
    )
