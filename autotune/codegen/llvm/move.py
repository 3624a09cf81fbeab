"""Data moved into another order: lanes that come from a few runs of memory, interleaved.

In: a store of a load, such as the last dimensions of a transpose. Out: a vector load per run, and
shuffles that put the lanes side by side, instead of a load per lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.llvm.dot import DotWriter
from autotune.codegen.llvm.index import Lane, Linear
from autotune.codegen.llvm.text import type_text
from autotune.program.ir import Buffer, Index, Load, Store
from autotune.types import ITEM_BYTES

_PIECE = 16
"""Elements of a run that are moved at a time."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Lane i is element i // count of run i % count; `starts` are the runs' first elements."""

    starts: tuple[Linear, ...]
    length: int


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
        to, runs = self._places(target, stmt.indices), self._places(source, load.indices)
        if to is None or runs is None or len(to.starts) != 1 or len(runs.starts) == 1:
            return False
        at = 0
        while at < runs.length:
            size = min(_PIECE, 1 << (runs.length - at).bit_length() - 1)
            self._piece((source, runs), (target, to), at, size)
            at += size
        return True

    def _places(self, buffer: Buffer, indices: tuple[Index, ...]) -> _Runs | None:
        """The runs in which the lanes lie; None where lanes cannot be told apart here and now.

        Places read from memory may differ from lane to lane: lanes are neighbours only where all
        of their terms agree, not just the constants."""
        flat = self.flat(buffer, indices)
        names = {v for v, now in self.env.items() if isinstance(now, Lane)}
        for atom, _ in flat.terms:
            used = Index(((atom, 1),)).vars()
            if used & names and not used <= names:
                return None
        lanes: list[Linear] = []
        for lane in range(self.lanes):
            with self.one_lane(lane):
                lanes.append(self.linear(flat))
        for count in range(1, len(lanes) // 2 + 1):
            if len(lanes) % count == 0 and all(
                b == a._replace(const=a.const + 1)
                for a, b in zip(lanes, lanes[count:], strict=False)
            ):
                return _Runs(tuple(lanes[:count]), len(lanes) // count)
        return None

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


def _vector(dtype: str, lanes: int) -> str:
    """A vector in memory, also of one element: those can be shuffled."""
    return f"<{lanes} x {type_text(dtype, 1, memory=True)}>"
