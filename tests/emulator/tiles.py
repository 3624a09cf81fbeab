"""Matrix tiles (Intel AMX) by numpy, for machines that have none.

In: LLVM IR of kernels. Out: the same, with calls of this process in the place of AMX's
instructions, so that all other code is run as it is. What the processor would refuse is kept as a
fault: shapes that do not fit each other, tiles that have none, memory no tile may have.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from autotune.codegen.elf.symbols import TILE_SHAPES
from autotune.codegen.llvm import backend
from autotune.target import Target
from autotune.types import Array

TILES, ROWS, ROW_BYTES = 8, 16, 64
FEATURES = ("amx-tile", "amx-bf16", "amx-int8")
_CALL = re.compile(r"call void @llvm\.x86\.(\w+)\(")
_DECLARED = re.compile(r"^declare void @llvm\.x86\.(?:ld)?t\w+\([^)]*\)\n", re.MULTILINE)


def with_tiles(target: Target) -> Target:
    """A CPU of any machine with the vectors and the tiles of one that has AMX."""
    features = ",".join([target.features, *(f"+{name}" for name in FEATURES)]).lstrip(",")
    return dataclasses.replace(
        target, features=features, vector_bytes=64, vector_registers=32, name="tiles"
    )


@dataclass
class Thread:
    """Tile registers of a thread."""

    shapes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Register -> rows, bytes of a row."""
    data: Array = field(default_factory=lambda: np.zeros((TILES, ROWS, ROW_BYTES), np.uint8))


class Tiles:
    """AMX's instructions as functions with C's calling convention."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}
        """How often an instruction was run."""
        self._threads: dict[int, Thread] = {}
        self._functions = {
            "ldtilecfg": self._function(self.ldtilecfg, ctypes.c_void_p),
            "tilerelease": self._function(self.tilerelease),
            "tilezero": self._function(self.tilezero, ctypes.c_uint8),
            "tileloadd64": self._function(self.load, *_MOVE),
            "tilestored64": self._function(self.store, *_MOVE),
            "tdpbf16ps": self._function(self.tdpbf16ps, *[ctypes.c_uint8] * 3),
            "tdpbusd": self._function(self.tdpbusd, *[ctypes.c_uint8] * 3),
        }

    def emulated(self, text: str) -> str:
        """LLVM IR without AMX's instructions."""

        def call(match: re.Match[str]) -> str:
            if match[1] not in self._functions:
                return match[0]
            address = ctypes.cast(self._functions[match[1]], ctypes.c_void_p).value
            return f"call void inttoptr (i64 {address} to ptr)("

        # No permission is needed for these.
        text = text.replace(TILE_SHAPES, "emulated_shapes")
        return _CALL.sub(call, _DECLARED.sub("", text))

    # -------------------------------------------------------------------------------- instructions

    def ldtilecfg(self, address: int) -> None:
        raw = ctypes.string_at(address, 64)
        now = self._now()
        now.data[:] = 0
        now.shapes.clear()
        if raw[0] != 1 or any(raw[1:16]) or any(raw[32:48]) or any(raw[56:]):
            raise ValueError("a reserved byte of a configuration is set")
        for number in range(TILES):
            width, rows = int.from_bytes(raw[16 + 2 * number :][:2], "little"), raw[48 + number]
            if bool(width) != bool(rows) or width > ROW_BYTES or rows > ROWS:
                raise ValueError(f"tile {number} has {rows} rows of {width} bytes")
            if rows:
                now.shapes[number] = rows, width

    def tilerelease(self) -> None:
        self._now().shapes.clear()

    def tilezero(self, number: int) -> None:
        self._tile(number)
        self._now().data[number] = 0

    def load(self, number: int, address: int, pitch: int) -> None:
        rows, width = self._tile(number)
        data = self._now().data[number]
        data[:] = 0
        for row in range(rows):
            raw = ctypes.string_at(address + row * pitch, width)
            data[row, :width] = np.frombuffer(raw, np.uint8)

    def store(self, number: int, address: int, pitch: int) -> None:
        rows, width = self._tile(number)
        for row in range(rows):
            raw = self._now().data[number, row, :width].tobytes()
            ctypes.memmove(address + row * pitch, raw, width)

    def tdpbf16ps(self, sums: int, a: int, b: int) -> None:
        left, right = self._operands(sums, a, b, np.uint16)
        wide = [(x.astype(np.uint32) << 16).view(np.float32) for x in (left, right)]
        self._add(sums, *wide, np.float32)

    def tdpbusd(self, sums: int, a: int, b: int) -> None:
        left, right = self._operands(sums, a, b, np.uint8)
        self._add(sums, left.astype(np.int32), right.view(np.int8).astype(np.int32), np.int32)

    # ------------------------------------------------------------------------------------- helpers

    def _operands(self, sums: int, a: int, b: int, kind: type) -> tuple[Array, Array]:
        """Rows of a, and rows of b as columns: (rows, depth) and (depth, columns)."""
        (rows, width), (height, depth), (groups, wide) = map(self._tile, (sums, a, b))
        if len({sums, a, b}) < 3 or (height, groups * 4, wide) != (rows, depth, width):
            raise ValueError(f"tiles {sums}, {a} and {b} do not fit each other")
        data = self._now().data
        count = 4 // np.dtype(kind).itemsize
        left = np.ascontiguousarray(data[a, :rows, :depth]).view(kind)
        right = np.ascontiguousarray(data[b, :groups, :wide]).view(kind)
        right = right.reshape(groups, -1, count).transpose(0, 2, 1).reshape(groups * count, -1)
        return left, np.ascontiguousarray(right)

    def _add(self, sums: int, left: Array, right: Array, kind: type) -> None:
        rows, width = self._tile(sums)
        data = self._now().data[sums]
        old = np.ascontiguousarray(data[:rows, :width]).view(kind)
        with np.errstate(all="ignore"):
            data[:rows, :width] = (old + left @ right).astype(kind).view(np.uint8)

    def _tile(self, number: int) -> tuple[int, int]:
        shapes = self._now().shapes
        if number not in shapes:
            raise ValueError(f"tile {number} has no shape")
        return shapes[number]

    def _now(self) -> Thread:
        return self._threads.setdefault(threading.get_native_id(), Thread())

    def _function(self, run: Callable[..., None], *arguments: type) -> ctypes._CFuncPtr:
        name = run.__name__

        def guarded(*given: int) -> None:
            self.counts[name] = self.counts.get(name, 0) + 1
            try:
                run(*given)
            except ValueError as fault:
                self.faults.append(f"{name}: {fault}")

        return ctypes.CFUNCTYPE(None, *arguments)(guarded)


_MOVE = (ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64)


@contextmanager
def emulated_tiles() -> Iterator[Tiles]:
    """What the LLVM backend builds meanwhile runs on these tiles. AssertionError for faults, and
    where a thread's tiles are not released."""
    tiles, compile_text = Tiles(), backend.compile_text

    def compiled(text: str, target: Target) -> bytes:
        return compile_text(tiles.emulated(text), target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "compile_text", compiled)
        yield tiles
    assert not tiles.faults
    assert not any(t.shapes for t in tiles._threads.values()), "tiles were not released"
