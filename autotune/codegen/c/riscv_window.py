"""Sums of windows of bytes, each over a channel of its own (a depthwise convolution), by RISC-V's
vectors: sixteen neighbouring channels at once. In: a ColumnTile, the loop over channels around it.
Out: lines of C with extended assembler.

A tile of the first of sixteen channels adds for all of them, and keeps the sums in memory; tiles
of the others load theirs. In the loop over rows of the window, each column of the data is read
once for all points whose windows have it:

    w0, w1, w2 = weights of a row, widened
    d = bytes of column 0, widened; s0 += d * w0
    d = bytes of column 1, ...; s0 += d * w1; s1 += d * w0
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.c.column_tile import ByteColumns, ColumnTile, column_tile_of
from autotune.codegen.c.index import CLinear
from autotune.codegen.c.riscv_tile import Numbers
from autotune.codegen.c.statement import CStatementWriter
from autotune.program import ir

CHANNELS = 16
"""Chosen: a whole vector of 128 bits."""
MOST_TAPS, MOST_POINTS = 3, 5
"""Registers: two for each tap of a row, four for each point's sums, two for the data (specified,
of 32)."""
_DATA, _FIRST_SUM = 6, 12
_SUM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTile:
    """The tile of a channel, and where its weights lie."""

    tile: ColumnTile
    channel: str
    """The variable of the loop around it."""
    channels: int
    """Its turns."""
    weights: str
    """C expression of the first weight."""
    row: int
    """Weights from a row to the next."""
    tap: int

    @property
    def nbytes(self) -> int:
        """Bytes of the sums of all channels."""
        return len(self.tile.sums) * CHANNELS * _SUM_BYTES

    def lines(self, memory: str) -> list[str]:
        """C that adds all products; `memory`: for the sums, which stay until the last channel."""
        numbers, now = Numbers(), f"({self.channel} & {CHANNELS - 1})"
        body, left = self._text(numbers), f"{self.channels} - {self.channel}"
        outs = [f'[{name}] "+r"({name})' for name in ("ph", "pg", "ps", "left")]
        outs += [f'[{name}] "=&r"({name})' for name in ("n", "a", "rows")]
        return [
            "{",
            f"    i32 *const sums = (i32 *)({memory});",
            f"    if ({now} == 0) {{",
            f"        const i8 *ph = {self.weights};",
            f"        const {self.tile.kind} *pg = {self.tile.pointer};",
            "        i32 *ps = sums;",
            f"        u32 n, a, rows, left = (u32)({left} < {CHANNELS} ? {left} : {CHANNELS});",
            "        __asm__ volatile(",
            *(f'            "{line}\\n"' for line in body),
            f"            : {', '.join(outs)}",
            f"            : {numbers.given}",
            "            : VECTOR_REGISTERS);",
            "    }",
            *(
                f"    {name} = ({name}) + sums[{now} + {n * CHANNELS}];"
                for n, name in enumerate(self.tile.sums)
            ),
            "}",
        ]

    def _text(self, numbers: Numbers) -> list[str]:
        """Instructions, for as many channels at a time as a core's vectors have."""
        sums = range(len(self.tile.sums))
        rows = self.tile.held.rows
        return [
            "1: vsetvli %[n], %[left], e32, m4, ta, ma",
            *(f"vmv.v.i v{_sum(n)}, 0" for n in sums),
            f"li %[rows], {rows}",
            "2: vsetvli zero, %[n], e16, m2, ta, ma",
            *self._row(numbers),
            *numbers.added("ph", "ph", self.row),
            *numbers.added("pg", "pg", self.tile.row),
            "addi %[rows], %[rows], -1",
            "bnez %[rows], 2b",
            "mv %[a], %[ps]",
            *(
                line
                for n in sums
                for line in (
                    f"vse32.v v{_sum(n)}, (%[a])",
                    f"addi %[a], %[a], {CHANNELS * _SUM_BYTES}",
                )
            ),
            "sub %[left], %[left], %[n]",
            "add %[ph], %[ph], %[n]",
            *numbers.added("ph", "ph", -rows * self.row),
            "add %[pg], %[pg], %[n]",
            *numbers.added("pg", "pg", -rows * self.tile.row),
            "slli %[n], %[n], 2",
            "add %[ps], %[ps], %[n]",
            "bnez %[left], 1b",
        ]

    def _row(self, numbers: Numbers) -> list[str]:
        """Products of a row of the window."""
        out: list[str] = []
        taps, before = self.tile.held.taps, 0
        for tap in range(taps):
            out += numbers.added("a", "a", self.tap) if tap else ["mv %[a], %[ph]"]
            out += [f"vle8.v v{2 * tap + 1}, (%[a])", f"vsext.vf2 v{2 * tap}, v{2 * tap + 1}"]
        for column in range(self.tile.points[-1] + taps):
            users = [(n, column - p) for n, p in enumerate(self.tile.points) if p <= column]
            users = [(n, tap) for n, tap in users if tap < taps]
            if users:
                moved = (column - before) * self.tile.tap
                out += numbers.added("a", "a", moved) if column else ["mv %[a], %[pg]"]
                before = column
                out += [f"vle8.v v{_DATA + 1}, (%[a])", f"vzext.vf2 v{_DATA}, v{_DATA + 1}"]
                out += [f"vwmacc.vv v{_sum(n)}, v{_DATA}, v{2 * tap}" for n, tap in users]
        return out


def _sum(point: int) -> int:
    """The register of a point's sums."""
    return _FIRST_SUM + 4 * point


def channel_tile_of(
    writer: CStatementWriter, window: ByteColumns, channel: str, channels: int
) -> ChannelTile | None:
    """The window as a tile, where one of the channel behind has its bytes behind this one's."""
    tile = column_tile_of(writer, window, ())
    if tile is None or tile.held.taps > MOST_TAPS or len(tile.points) > MOST_POINTS:
        return None
    env = dict(writer.env)
    writer.env.update((x.var, 0) for x in window.loops)

    def place(load: ir.Load, loop: ir.For | None = None) -> CLinear:
        writer.env.update((x.var, int(x is loop)) for x in window.loops)
        return writer.flat(writer.buffers[load.buffer], load.indices)

    data, first = place(window.data), place(window.weights)
    row, tap = (place(window.weights, loop).const - first.const for loop in window.over)
    writer.env.clear()
    writer.env.update(env)
    if any([c for name, c in at.terms if name == channel] != [1] for at in (data, first)):
        return None
    weights = writer.place(writer.buffers[window.weights.buffer], first)
    return ChannelTile(
        tile=tile, channel=channel, channels=channels, weights=weights, row=row, tap=tap
    )
