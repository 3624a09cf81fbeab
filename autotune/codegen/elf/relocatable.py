"""Several relocatable objects and blocks of data as one, without a linker (`ld -r`).

In: objects of one machine that may call each other, data by symbol. Out: an object, of which only
some names can be seen from outside; or that object as an archive (`.a`).

Sections stay as they are, side by side, so no relocation changes but for the number of its symbol.
Of a weak function that many objects define, one definition is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from autotune.codegen.elf.objects import (
    ABSOLUTE,
    ALLOC,
    LOCAL,
    MACHINES,
    UNDEFINED,
    WEAK,
    ElfObject,
    Form,
    Section,
    Symbol,
    read_elf,
)
from autotune.codegen.elf.write import (
    FUNCTION,
    GLOBAL,
    NOBITS,
    NOTYPE,
    OBJECT,
    PROGBITS,
    REL,
    RELA,
    RELOCATABLE,
    STRTAB,
    SYMTAB,
    OutSection,
    Strings,
    elf_file,
    machine_number,
    relocation_entry,
    symbol_entry,
)
from autotune.errors import BuildError
from autotune.memory import ALIGNMENT, Bytes

DATA_SECTION = ".rodata.weights"
_INFO_LINK = 0x40
"""A relocation section's flag: `info` is a section's number."""
_AR_MAGIC = b"!<arch>\n"

Place = tuple[int, int]
"""A symbol: the number of its object, and its own in there."""


def object_flags(code: bytes) -> int:
    """The flags in an object's header: which calling convention it keeps."""
    _, form = MACHINES[int.from_bytes(code[18:20], "little")]
    return int(form.header.unpack_from(code)[10])


def merged_object(
    codes: Sequence[bytes], data: Mapping[str, Bytes], public: Collection[str]
) -> bytes:
    """One object of many. `data`: blocks that the objects know by name; `public`: functions that
    can be called from outside. Raises BuildError."""
    objects = [read_elf(code) for code in codes]
    machine = objects[0].machine
    form = MACHINES[machine_number(machine)][1]
    merged = _Merged(objects, data)
    symbols = _Symbols(merged, form, public)
    sections = [_section(section) for _, section in merged.sections]
    sections += [_data_section(block) for block in data.values()]
    table = len(sections) + 1
    strings = OutSection(name=".strtab", kind=STRTAB, data=bytes(symbols.strings.data))
    sections.append(
        OutSection(
            name=".symtab",
            kind=SYMTAB,
            data=b"".join(symbols.rows),
            link=table + 1,
            info=symbols.locals,
            alignment=form.address,
            entry=form.symbol.size,
        )
    )
    sections.append(strings)
    sections += _relocation_sections(merged, symbols, form, table)
    sections.append(OutSection(name=".note.GNU-stack"))
    return elf_file(machine, RELOCATABLE, object_flags(codes[0]), sections)


class _Merged:
    """Sections and symbols of all objects under new numbers."""

    def __init__(self, objects: Sequence[ElfObject], data: Mapping[str, Bytes]) -> None:
        self.objects, self.data = objects, data
        self.sections: list[tuple[int, Section]] = [
            (n, section) for n, item in enumerate(objects) for section in item.sections.values()
        ]
        self.number = {(n, s.index): k + 1 for k, (n, s) in enumerate(self.sections)}
        self._strong: dict[str, Place] = {}
        self._weak: dict[str, Place] = {}
        for n, item in enumerate(objects):
            for k, symbol in enumerate(item.symbols):
                self._define(symbol, (n, k))

    def _define(self, symbol: Symbol, place: Place) -> None:
        if symbol.section in (UNDEFINED, ABSOLUTE) or symbol.binding == LOCAL:
            return
        if symbol.binding == WEAK:
            self._weak.setdefault(symbol.name, place)
        elif symbol.name in self._strong or symbol.name in self.data:
            raise BuildError(f"{symbol.name} is defined twice in the objects")
        else:
            self._strong[symbol.name] = place

    def symbol(self, place: Place) -> Symbol:
        return self.objects[place[0]].symbols[place[1]]

    def meant(self, place: Place) -> Place | str:
        """The definition that a symbol stands for, or the name of one from outside."""
        symbol = self.symbol(place)
        if symbol.binding == LOCAL:
            return place
        return self._strong.get(symbol.name) or self._weak.get(symbol.name) or symbol.name


class _Symbols:
    """The symbol table: local symbols before those that are seen from outside."""

    def __init__(self, merged: _Merged, form: Form, public: Collection[str]) -> None:
        self._merged, self._form = merged, form
        self.strings = Strings()
        self.rows = [bytes(form.symbol.size)]
        self._numbers: dict[Place | str, int] = {}
        for number, (name, block) in enumerate(merged.data.items()):
            section = len(merged.sections) + 1 + number
            self._add(name, name, (LOCAL, OBJECT), section, (0, block.nbytes))
        places = [
            (n, k) for n, item in enumerate(merged.objects) for k in range(len(item.symbols))
        ]
        meant = dict.fromkeys(merged.meant(place) for place in places)
        outer = [key for key in meant if isinstance(key, str) or self._name(key) in public]
        for key in meant:
            if isinstance(key, tuple) and self._name(key) not in public:
                self._add_defined(key, LOCAL)
        self.locals = len(self.rows)
        for key in outer:
            if isinstance(key, tuple):
                self._add_defined(key, GLOBAL)
            elif key not in self._numbers:
                self._add(key, key, (GLOBAL, NOTYPE), UNDEFINED)

    def number(self, place: Place) -> int:
        return self._numbers[self._merged.meant(place)]

    def _name(self, place: Place) -> str:
        return self._merged.symbol(place).name

    def _add_defined(self, place: Place, binding: int) -> None:
        symbol = self._merged.symbol(place)
        section = self._merged.number.get((place[0], symbol.section))
        function = binding == GLOBAL or symbol.binding != LOCAL
        self._add(
            place,
            symbol.name if function or symbol.name.startswith("$") else "",
            (binding, FUNCTION if binding == GLOBAL else NOTYPE),
            ABSOLUTE if section is None else section,
            (symbol.value, 0),
        )

    def _add(
        self,
        key: Place | str,
        name: str,
        info: tuple[int, int],
        section: int,
        place: tuple[int, int] = (0, 0),
    ) -> None:
        self._numbers[key] = len(self.rows)
        entry = symbol_entry(self._form, self.strings.add(name), info, section, place)
        self.rows.append(entry)


def _section(section: Section) -> OutSection:
    """A section as it was in its object; a linker may merge equal constants of several."""
    empty = section.size > 0 and not section.data
    return OutSection(
        name=section.name,
        kind=NOBITS if empty else PROGBITS,
        data=section.data,
        size=section.size,
        flags=section.flags & 7,
        alignment=section.alignment,
    )


def _data_section(block: Bytes) -> OutSection:
    return OutSection(name=DATA_SECTION, data=block.data, flags=ALLOC, alignment=ALIGNMENT)


def _relocation_sections(
    merged: _Merged, symbols: _Symbols, form: Form, table: int
) -> list[OutSection]:
    out = []
    for n, item in enumerate(merged.objects):
        for index, entries in itertools.groupby(item.relocations, key=lambda r: r.section):
            rows = list(entries)
            bare = rows[0].addend is None
            data = b"".join(
                relocation_entry(form, r.offset, symbols.number((n, r.symbol)), r.kind, r.addend)
                for r in rows
            )
            out.append(
                OutSection(
                    name=f"{'.rel' if bare else '.rela'}{item.sections[index].name}",
                    kind=REL if bare else RELA,
                    data=data,
                    flags=_INFO_LINK,
                    link=table,
                    info=merged.number[n, index],
                    alignment=form.address,
                    entry=(form.rel if bare else form.rela).size,
                )
            )
    return out


def archive(name: str, code: bytes, public: Sequence[str]) -> bytes:
    """A static library of one object, with the index of its symbols that linkers look in (System V
    and GNU's form)."""
    names = b"".join(symbol.encode() + b"\0" for symbol in public)
    index_bytes = 4 + 4 * len(public) + len(names)
    index_bytes += index_bytes % 2
    member = len(_AR_MAGIC) + 60 + index_bytes
    index = len(public).to_bytes(4, "big") + member.to_bytes(4, "big") * len(public) + names
    head = _ar_header("/", index_bytes) + index.ljust(index_bytes, b"\0")
    pad = b"\n" if len(code) % 2 else b""
    return b"".join((_AR_MAGIC, head, _ar_header(f"{name}/", len(code)), code, pad))


def _ar_header(name: str, size: int) -> bytes:
    fields = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n"
    return fields.encode()
