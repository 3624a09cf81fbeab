"""Sums of a window of bytes over one channel (a depthwise convolution), for points of a row side
by side, in Arm's instructions. In: loops, what writes them. Out: lines of C with extended
assembler.

Weights of the channel stay in registers for all rows and points, two in a word; each column of
the data is read once for all points whose windows have it:

    load t, u, v                    three bytes of a column
    t = t, u as halves of a word
    s0 += t.b * w00.b + t.t * w00.t; s0 += v * w2.b; s1 += ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.codegen.c.dot_match import factors_of, nest_of
from autotune.codegen.c.dot_tile import REGISTERS
from autotune.codegen.c.index import CLinear
from autotune.codegen.c.statement import CStatementWriter
from autotune.program import ir

_OFFSETS = range(4096)
"""What a load may add to an address (specified)."""

HALVES = """static inline u32 halves(i32 low, i32 high) {
    u32 out;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(out) : "r"(low), "r"(high));
    return out;
}"""
"""C of two numbers in a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteColumns:
    """The loops of one, its sum, and what it multiplies."""

    loops: tuple[ir.For, ...]
    guards: tuple[ir.Bound, ...]
    store: ir.Store
    data: ir.Load
    weights: ir.Load

    @property
    def over(self) -> tuple[ir.For, ir.For]:
        """Its rows, and the taps of one."""
        summed = {v for i in self.store.indices for v in i.vars()}
        rows, taps = (x for x in self.loops if x.var not in summed and x.extent != 1)
        return rows, taps

    @property
    def points(self) -> tuple[ir.For, ...]:
        """Loops over sums."""
        over = self.over
        return tuple(x for x in self.loops if x not in over and x.extent != 1)


def window_of(stmt: ir.Stmt, dtypes: Callable[[str], str]) -> ByteColumns | None:
    """The window that a loop is; None for another loop. `dtypes`: of a buffer, by its name."""
    found = nest_of(stmt) if isinstance(stmt, ir.For) else None
    factors = factors_of(found[2]) if found else None
    if found is None or factors is None or found[0][-1].kind == "dot":
        return None
    loops, guards, store = found
    summed = {v for i in store.indices for v in i.vars()}
    over = {x.var for x in loops if x.var not in summed and x.extent != 1}
    inside = {x.var for x in loops if x.extent != 1}
    if len(over) != 2 or over & {v for b in guards for v in b.index.vars()}:
        return None
    for data, weights in (factors, factors[::-1]):
        read = {v for i in weights.indices for v in i.vars()}
        if read & inside == over and dtypes(weights.buffer) == "int8":
            return ByteColumns(
                loops=tuple(loops), guards=tuple(guards), store=store, data=data, weights=weights
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWeights:
    """Weights of a channel as words of two: C variables and what they are set to."""

    rows: int
    taps: int

    @property
    def words(self) -> int:
        return self.taps * (self.rows // 2) + -(-self.taps * (self.rows % 2) // 2)

    def values(self, weight: Callable[[int, int], str]) -> list[str]:
        """C of each word; `weight`: C of a weight by row and tap."""
        pairs = [
            (weight(2 * r, t), weight(2 * r + 1, t))
            for r in range(self.rows // 2)
            for t in range(self.taps)
        ]
        left = [weight(self.rows - 1, t) for t in range(self.taps * (self.rows % 2))]
        words = [
            f"halves({a}, {b})" for a, b in [*pairs, *zip(left[::2], left[1::2], strict=False)]
        ]
        return [*words, *(f"(u32){a}" for a in left[::2][len(left) // 2 :])]

    def product(self, row: int, tap: int, total: str) -> str:
        """The instruction that adds a column's pair of rows, or its last one, to a sum."""
        if row + 1 < self.rows:
            word = row // 2 * self.taps + tap
            return f"smlad {total}, %[t], %[w{word}], {total}"
        word = self.rows // 2 * self.taps + tap // 2
        return f"smlab{'bt'[tap % 2]} {total}, %[v], %[w{word}], {total}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTile:
    """Sums of points of a row."""

    pointer: str
    kind: str
    row: int
    """Bytes from a row of the window to the next."""
    tap: int
    points: tuple[int, ...]
    """Taps from the first point's window to each."""
    sums: tuple[str, ...]
    held: HeldWeights
    weights: tuple[str, ...]

    def lines(self) -> list[str] | None:
        """C that adds all products; None where registers or offsets do not do."""
        rows, taps = self.held.rows, self.held.taps
        columns = self.points[-1] + taps
        most = (rows - 1) * self.row + (columns - 1) * self.tap
        wanted = len(self.sums) + self.held.words + 4
        if most not in _OFFSETS or wanted > REGISTERS:
            return None
        body = [line for column in range(columns) for line in self._column(column)]
        outs = [f'[s{n}] "+r"({name})' for n, name in enumerate(self.sums)]
        outs += [f'[{name}] "=&r"({name})' for name in "tuv"]
        given = [f'[w{n}] "r"({name})' for n, name in enumerate(self.weights)]
        return [
            "{",
            f"    const {self.kind} *const pg = {self.pointer};",
            "    u32 t, u, v;",
            "    __asm__ volatile(",
            *(f'        "{line}\\n"' for line in body),
            f"        : {', '.join(outs)}",
            f'        : [pg] "r"(pg), {", ".join(given)}',
            '        : "memory");',
            "}",
        ]

    def _column(self, column: int) -> list[str]:
        """Its bytes, and the products that they are in."""
        rows, out = self.held.rows, []
        users = [
            (n, column - p) for n, p in enumerate(self.points) if 0 <= column - p < self.held.taps
        ]
        if not users:
            return []
        for row in range(0, rows, 2):
            left = rows - row
            names = ["tuv"[n] for n in range(left)] if left in (2, 3) else ["v", "tu"][left > 1]
            if row and left == 1:
                names = []  # loaded with the pair before it
            for n, name in enumerate(names):
                at = (row + n) * self.row + column * self.tap
                out.append(f"ldrb %[{name}], [%[pg], #{at}]")
            out += ["pkhbt %[t], %[t], %[u], lsl #16"] * (left > 1)
            out += [self.held.product(row, tap, f"%[s{n}]") for n, tap in users]
        return out


def column_tile_of(
    writer: CStatementWriter, window: ByteColumns, weights: tuple[str, ...]
) -> ColumnTile | None:
    """The window as a tile, where its points are ones of a row and its data bytes in memory."""
    env = dict(writer.env)
    try:
        return _tile(writer, window, weights)
    finally:
        writer.env.clear()
        writer.env.update(env)


def _tile(
    writer: CStatementWriter, window: ByteColumns, weights: tuple[str, ...]
) -> ColumnTile | None:
    buffer, sums = writer.buffers[window.data.buffer], writer.buffers[window.store.buffer]
    if buffer.scope == "register" or buffer.swizzle or buffer.dtype != "uint8":
        return None
    if not writer.in_registers(sums.name) or sums.name in writer.conflicts:
        return None
    writer.env.update((x.var, 0) for x in window.loops)
    first = writer.flat(buffer, window.data.indices)

    def step(loop: ir.For) -> int:
        writer.env[loop.var] = 1
        place = writer.flat(buffer, window.data.indices)
        writer.env[loop.var] = 0
        return place.const - first.const if place.terms == first.terms else 0

    rows, taps = window.over
    row, tap = step(rows), step(taps)
    found = []
    for at in itertools.product(*(range(x.extent) for x in window.points)):
        writer.env.update(zip([x.var for x in window.points], at, strict=True))
        holds = writer.condition(list(window.guards))
        place = writer.flat(buffer, window.data.indices)
        if isinstance(holds, str) or place.terms != first.terms:
            return None
        if holds:
            name = writer.cell(sums, writer.flat(sums, window.store.indices)).text
            found.append((place.const - first.const, name))
    names = tuple(name for _, name in found)
    if min(row, tap) <= 0 or not found or len(set(names)) != len(names):
        return None
    if found[0][0] != 0 or any(at % tap for at, _ in found) or sorted(found) != found:
        return None
    return ColumnTile(
        pointer=writer.place(buffer, CLinear(first.terms, first.const)),
        kind=writer.helpers.type(buffer.dtype),
        row=row,
        tap=tap,
        points=tuple(at // tap for at, _ in found),
        sums=names,
        held=HeldWeights(rows=rows.extent, taps=taps.extent),
        weights=weights,
    )


def invariant_loads(loop: ir.For, constants: Sequence[str]) -> list[ir.Load]:
    """What a loop reads of constants at places that it does not change, but for windows' weights:
    each once."""
    inside = {x.var for x in ir.walk((loop,)) if isinstance(x, ir.For) and x.extent != 1}
    found: dict[ir.Load, None] = {}

    def visit(value: ir.Value) -> None:
        if isinstance(value, ir.Load) and value.buffer in constants:
            if not inside & {v for i in value.indices for v in i.vars()}:
                found[value] = None
        elif isinstance(value, ir.Apply):
            for arg in value.args:
                visit(arg)

    for stmt in ir.walk((loop,)):
        if isinstance(stmt, ir.Store):
            visit(stmt.value)
    return list(found)
