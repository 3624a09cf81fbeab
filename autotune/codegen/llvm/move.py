"""Data moved into another order: lanes that come from runs of memory, interleaved or transposed.

In: a store of a load, such as the last dimensions of a transpose. Out: a vector load per run, and
shuffles that put the lanes side by side, instead of a load per lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.codegen.llvm.dot import DotWriter
from autotune.codegen.llvm.index import Lane, Linear
from autotune.codegen.llvm.text import type_text
from autotune.codegen.llvm.transpose import ABSENT, transposed
from autotune.program.ir import Buffer, Index, Load, Store
from autotune.types import ITEM_BYTES

_PIECE = 16
"""Elements of a run that are moved at a time."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Lane i is element i // count of run i % count; `starts` are the runs' first elements."""

    starts: tuple[Linear, ...]
    length: int


@dataclass(frozen=True, slots=True)
class _Tile:
    """Lane i is written to element i % n of row i // n, and read from element i // n of column
    i % n, for n columns; both begin at these places."""

    rows: tuple[Linear, ...]
    columns: tuple[Linear, ...]


class MoveWriter(DotWriter):
    """Writes stores of what lies in runs."""

    def store_moved(self, stmt: Store) -> bool:
        """Write the store if its lanes come from runs; False, writing nothing, if they do not."""
        load = stmt.value
        if self.lanes < 4 or self.mask is not None or stmt.combine or not isinstance(load, Load):
            return False
        target, source = self.buffers[stmt.buffer], self.buffers[load.buffer]
        if "register" in (target.scope, source.scope) or target.dtype != source.dtype:
            return False
        written, read = (
            self._places(b, i) for b, i in ((target, stmt.indices), (source, load.indices))
        )
        if written is None or read is None:
            return False
        tile = _tile(written, read)
        if tile is not None:
            self._transpose((source, target), tile)
            return True
        to, runs = _runs(written), _runs(read)
        if to is None or runs is None or len(to.starts) != 1 or len(runs.starts) == 1:
            return False
        at = 0
        while at < runs.length:
            size = min(_PIECE, 1 << (runs.length - at).bit_length() - 1)
            self._piece((source, runs), (target, to), at, size)
            at += size
        return True

    def _places(self, buffer: Buffer, indices: tuple[Index, ...]) -> list[Linear] | None:
        """Where every lane lies; None where lanes cannot be told apart here and now."""
        flat = self.flat(buffer, indices)
        names = {v for v, now in self.env.items() if isinstance(now, Lane)}
        for atom, _ in flat.terms:
            alone = Index(((atom, 1),))
            used = alone.vars()
            # What loops and lanes decide together is computed for each row of a tile.
            if used & names and not used <= names and len(set(self.each_lane(alone))) > _PIECE:
                return None
        lanes: list[Linear] = []
        for lane in range(self.lanes):
            with self.one_lane(lane):
                lanes.append(self.linear(flat))
        return lanes

    def _transpose(self, buffers: tuple[Buffer, Buffer], tile: _Tile) -> None:
        """Load the tile's columns, each a run of the source, turn them, store rows."""
        source, target = buffers
        dtype, align = source.dtype, ITEM_BYTES[source.dtype]
        height, width = len(tile.rows), len(tile.columns)
        size = 1 << (max(height, width) - 1).bit_length()
        columns = [ABSENT] * size
        for number, start in enumerate(tile.columns):
            text = f"load {_vector(dtype, height)}, ptr {self.address(source, start)}"
            part = self.text.emit(f"{text}, align {align}")
            columns[number] = self._resized(part, dtype, height, size)

        def shuffle(a: str, b: str, order: Sequence[int]) -> str:
            return self._shuffled(a, b, dtype, size, list(order))

        rows = transposed(columns, align, shuffle)
        for start, row in zip(tile.rows, rows, strict=False):
            value = f"{_vector(dtype, width)} {self._resized(row, dtype, size, width)}"
            self.text.line(f"store {value}, ptr {self.address(target, start)}, align {align}")

    def _resized(self, value: str, dtype: str, lanes: int, wanted: int) -> str:
        """The first lanes of a vector, filled up with any."""
        if lanes == wanted:
            return value
        order = [i if i < lanes else -1 for i in range(wanted)]
        return self._shuffled(value, "poison", dtype, lanes, order)

    def _piece(
        self, source: tuple[Buffer, _Runs], target: tuple[Buffer, _Runs], at: int, size: int
    ) -> None:
        """Elements at .. at + size - 1 of every run."""
        (buffer, runs), parts = source, list[str]()
        align, kind = ITEM_BYTES[buffer.dtype], _vector(buffer.dtype, size)
        for start in runs.starts:
            pointer = self.address(buffer, start._replace(const=start.const + at))
            parts.append(self.text.emit(f"load {kind}, ptr {pointer}, align {align}"))
        value = self._interleaved(parts, buffer.dtype, size)
        (buffer, to), count = target, len(parts)
        first = to.starts[0]._replace(const=to.starts[0].const + at * count)
        kind = _vector(buffer.dtype, size * count)
        self.text.line(f"store {kind} {value}, ptr {self.address(buffer, first)}, align {align}")

    def _interleaved(self, parts: list[str], dtype: str, size: int) -> str:
        """Element 0 of every part, element 1 of every part, ..."""
        if len(parts) == 1:
            return parts[0]
        if len(parts) % 2 == 0:
            halves = [self._interleaved(parts[first::2], dtype, size) for first in (0, 1)]
            width = size * len(parts) // 2
            order = [i // 2 + i % 2 * width for i in range(2 * width)]
            return self._shuffled(halves[0], halves[1], dtype, width, order)
        return self._taken_apart(parts, dtype, size)

    def _taken_apart(self, parts: list[str], dtype: str, size: int) -> str:
        """An odd number of parts: put end to end, then every element taken from its place."""
        value, width = parts[0], size
        for part in parts[1:]:
            ends = [*range(size), *[-1] * (width - size)]
            wide = self._shuffled(part, "poison", dtype, size, ends) if width > size else part
            value = self._shuffled(value, wide, dtype, width, list(range(width + size)))
            width += size
        count = len(parts)
        order = [i // count + i % count * size for i in range(width)]
        return self._shuffled(value, "poison", dtype, width, order)

    def _shuffled(self, a: str, b: str, dtype: str, lanes: int, order: list[int]) -> str:
        kind = _vector(dtype, lanes)
        picked = ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in order)
        mask = f"<{len(order)} x i32> <{picked}>"
        return self.text.emit(f"shufflevector {kind} {a}, {kind} {b}, {mask}")


def _behind(place: Linear, by: int) -> Linear:
    return place._replace(const=place.const + by)


def _runs(lanes: list[Linear]) -> _Runs | None:
    """The runs in which the lanes lie, if they do.

    Places read from memory may differ from lane to lane: lanes are neighbours only where all of
    their terms agree, not just the constants."""
    for count in range(1, len(lanes) // 2 + 1):
        if len(lanes) % count == 0 and all(
            b == _behind(a, 1) for a, b in zip(lanes, lanes[count:], strict=False)
        ):
            return _Runs(tuple(lanes[:count]), len(lanes) // count)
    return None


def _tile(written: list[Linear], read: list[Linear]) -> _Tile | None:
    """The tile that is transposed by moving these lanes, if it is one of several rows that are
    apart, of up to `_PIECE` elements, and of as many columns at most."""
    width = next((i for i in range(1, len(written)) if written[i] != _behind(written[0], i)), 0)
    if not 1 < width <= _PIECE or len(written) % width:
        return None
    height = len(written) // width
    if not 1 < height <= _PIECE:
        return None
    for lane in range(len(written)):
        row, column = divmod(lane, width)
        whole = written[lane] == _behind(written[row * width], column)
        if not whole or read[lane] != _behind(read[column], row):
            return None
    return _Tile(tuple(written[::width]), tuple(read[:width]))


def _vector(dtype: str, lanes: int) -> str:
    """A vector in memory, also of one element: those can be shuffled."""
    return f"<{lanes} x {type_text(dtype, 1, memory=True)}>"
