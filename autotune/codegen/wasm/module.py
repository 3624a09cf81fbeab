"""Objects of kernels and blocks of data as one WebAssembly module, without a linker.

In: objects that may call each other, which of their functions are wanted, data at addresses. Out:
a module that has its memory and exports it with these functions. What no wanted function calls is
left out. From outside it wants functions of `math.h` alone, in the module `env`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autotune.codegen.llvm.kernel import WASM_FIRST_BYTES
from autotune.codegen.wasm import leb
from autotune.codegen.wasm.objects import (
    CODE,
    CUSTOM,
    DATA,
    DATA_SYMBOL,
    EXPORTS,
    FUNCTION,
    FUNCTION_LEB,
    FUNCTION_SYMBOL,
    FUNCTIONS,
    GLOBAL_LEB,
    GLOBALS,
    IMPORTS,
    MAGIC,
    MEMORIES,
    MEMORY,
    MEMORY_I32,
    MEMORY_LEB,
    MEMORY_SLEB,
    TYPE_LEB,
    TYPES,
    WasmObject,
    WasmPatch,
    WasmPiece,
    WasmSymbol,
    read_wasm,
)
from autotune.errors import BuildError

PAGE_BYTES = 65536
MOST_BYTES = 1 << 32
STACK_BYTES = WASM_FIRST_BYTES
_FIRST = 1024
"""Data begin here: nothing lies at address 0."""
_I32, _MUTABLE, _END = 0x7F, 1, 0x0B
_I32_CONST = 0x41

Place = tuple[int, int]
"""An object and a function or segment in it."""


class LinkedModule:
    """Objects that are being linked. `start`: the first address behind their data and the stack,
    from where the caller places what else there is."""

    def __init__(self, codes: Sequence[bytes], wanted: Sequence[str]) -> None:
        """Raises BuildError where one of these functions is missing, or an object is not ours."""
        self._objects = [read_wasm(code) for code in codes]
        self._defined = self._definitions()
        if missing := [name for name in wanted if name not in self._defined]:
            raise BuildError(f"no object has the function {missing[0]}")
        self._wanted = list(wanted)
        self._functions = self._reached([self._defined[name] for name in wanted])
        self._addresses, end = self._segments()
        self._stack = _aligned(end + STACK_BYTES, 64)
        self._types: dict[bytes, int] = {}
        self._outside: dict[str, int] = {}
        self._find_outside()

    @property
    def start(self) -> int:
        return self._stack

    @property
    def outside(self) -> tuple[str, ...]:
        """Functions that whoever runs the module gives it."""
        return tuple(self._outside)

    def written(
        self, blocks: Mapping[int, bytes | memoryview], end: int, about: Mapping[str, bytes]
    ) -> bytes:
        """The module, with these blocks of data at their addresses and memory up to `end`.
        `about`: custom sections. Raises BuildError where memory has no such addresses."""
        if end > MOST_BYTES:
            raise BuildError(f"WebAssembly has 4 GiB of memory, the model needs {end} bytes")
        bodies = [leb.block(self._patched(n, self._function(n, f))) for n, f in self._functions]
        kinds = [self._type(n, self._function(n, f).kind) for n, f in self._functions]
        pages = leb.number(-(-end // PAGE_BYTES))
        exports = [leb.text("memory") + bytes([MEMORY, 0])]
        for name in self._wanted:
            number = leb.number(self._number(self._defined[name]))
            exports.append(leb.text(name) + bytes([FUNCTION]) + number)
        imports = [
            leb.text("env") + leb.text(name) + bytes([FUNCTION]) + leb.number(kind)
            for name, kind in self._outside.items()
        ]
        stack = bytes([_I32, _MUTABLE, _I32_CONST]) + leb.padded_signed(self._stack)
        own = {
            self._addresses[n, s]: self._patched(n, piece)
            for n, item in enumerate(self._objects)
            for s, piece in enumerate(item.segments)
        }
        sections = [
            (TYPES, leb.vector(list(self._types))),
            (IMPORTS, leb.vector(imports)),
            (FUNCTIONS, leb.vector([leb.number(kind) for kind in kinds])),
            (MEMORIES, leb.vector([b"\0" + pages])),
            (GLOBALS, leb.vector([stack + bytes([_END])])),
            (EXPORTS, leb.vector(exports)),
            (CODE, leb.vector(bodies)),
            (DATA, leb.vector([_segment(at, data) for at, data in {**own, **blocks}.items()])),
            *((CUSTOM, leb.text(name) + data) for name, data in about.items()),
        ]
        return MAGIC + b"".join(bytes([kind]) + leb.block(data) for kind, data in sections)

    def _definitions(self) -> dict[str, Place]:
        """Where a function by that name is; a weak one where there is no other."""
        found: dict[str, Place] = {}
        for weak in (False, True):
            for number, item in enumerate(self._objects):
                for symbol in item.symbols:
                    if symbol.kind == FUNCTION_SYMBOL and symbol.defined and symbol.weak == weak:
                        place = (number, symbol.index - len(item.imported))
                        found.setdefault(symbol.name, place)
        return found

    def _function(self, number: int, function: int) -> WasmPiece:
        return self._objects[number].functions[function]

    def _reached(self, roots: Iterable[Place]) -> dict[Place, int]:
        """The functions that these call, and they themselves, numbered in order."""
        order: dict[Place, int] = {}
        pending = list(roots)
        while pending:
            place = pending.pop()
            if place in order:
                continue
            order[place] = len(order)
            number = place[0]
            for patch in self._function(*place).patches:
                if patch.kind == FUNCTION_LEB:
                    symbol = self._objects[number].symbols[patch.index]
                    if target := self._target(number, symbol):
                        pending.append(target)
        return order

    def _target(self, number: int, symbol: WasmSymbol) -> Place | None:
        """Where a called function is; None: outside."""
        found = self._defined.get(symbol.name)
        if found is None and symbol.defined:
            return number, symbol.index - len(self._objects[number].imported)
        return found

    def _segments(self) -> tuple[dict[Place, int], int]:
        at, places = _FIRST, {}
        for number, item in enumerate(self._objects):
            for segment, piece in enumerate(item.segments):
                at = _aligned(at, piece.align)
                places[number, segment] = at
                at += len(piece.data)
        return places, at

    def _find_outside(self) -> None:
        for number, function in self._functions:
            item = self._objects[number]
            for patch in self._function(number, function).patches:
                if patch.kind != FUNCTION_LEB:
                    continue
                symbol = item.symbols[patch.index]
                if self._target(number, symbol) is None and symbol.name not in self._outside:
                    kind = dict(item.imported)[symbol.name]
                    self._outside[symbol.name] = self._type(number, kind)

    def _type(self, number: int, kind: int) -> int:
        text = self._objects[number].types[kind]
        return self._types.setdefault(text, len(self._types))

    def _number(self, place: Place) -> int:
        return len(self._outside) + self._functions[place]

    def _patched(self, number: int, piece: WasmPiece) -> bytes:
        out = bytearray(piece.data)
        for patch in piece.patches:
            data = self._value(number, self._objects[number], patch)
            out[patch.at : patch.at + len(data)] = data
        return bytes(out)

    def _value(self, number: int, item: WasmObject, patch: WasmPatch) -> bytes:
        if patch.kind == TYPE_LEB:
            return leb.padded(self._type(number, patch.index))
        symbol = item.symbols[patch.index]
        if patch.kind == FUNCTION_LEB:
            target = self._target(number, symbol)
            if target is None:
                return leb.padded(list(self._outside).index(symbol.name))
            return leb.padded(self._number(target))
        if patch.kind == GLOBAL_LEB:  # the stack's pointer, the only one
            return leb.padded(0)
        if symbol.kind != DATA_SYMBOL or not symbol.defined:
            raise BuildError(f"a WebAssembly object wants what is in no other: {symbol.name}")
        address = self._addresses[number, symbol.index] + symbol.offset + patch.addend
        if patch.kind == MEMORY_LEB:
            return leb.padded(address)
        if patch.kind == MEMORY_SLEB:
            return leb.padded_signed(address)
        if patch.kind == MEMORY_I32:
            return address.to_bytes(4, "little")
        raise BuildError(f"a WebAssembly object has a relocation of kind {patch.kind}")


def _segment(at: int, data: bytes | memoryview) -> bytes:
    place = bytes([0, _I32_CONST]) + leb.padded_signed(at) + bytes([_END])
    return b"".join((place, leb.number(len(data)), data))


def _aligned(value: int, step: int) -> int:
    return -(-value // step) * step
