"""Tiles of sums of products of bytes in compact C: which loops become the assembler that their
files write. In: statements. Out: lines for compilers that take it, beside plain C for others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from autotune.codegen.c import riscv_tile, riscv_window
from autotune.codegen.c.column_tile import (
    HALVES,
    ByteColumns,
    HeldWeights,
    column_tile_of,
    invariant_loads,
    window_of,
)
from autotune.codegen.c.dialect import Dialect
from autotune.codegen.c.dot_call import ACLE
from autotune.codegen.c.dot_match import tile_of
from autotune.codegen.c.dot_tile import DotTile
from autotune.codegen.c.statement import CStatementWriter
from autotune.codegen.c.vector_tile import INTRINSICS, VECTORS, vector_lines
from autotune.codegen.c.widened_tile import WidenedRows, is_widened, routine, widening
from autotune.program import ir
from autotune.sizes import any_size
from autotune.target import Target

DSP = "+dsp"
"""LLVM's name for instructions on halves and quarters of words (Armv7E-M, Armv8-M)."""
MVE = "+mve"
"""LLVM's name for vectors of the M profile (Helium)."""
RISCV_VECTORS = "+zve32x"
"""LLVM's name for RISC-V's vectors of integers, which all of V has too."""
DUAL_ISSUE = "+dual-issue"
"""A core that begins a load and another instruction at once; those of others gain by loads in a
row."""
ASSEMBLER = "#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && defined(__OPTIMIZE__)"
"""Where there is extended assembler, and no register is the frame's."""
TILES = f"{ASSEMBLER} && !defined(__clang__)"
"""The same for as many operands as there are registers, for which clang finds none: it has ACLE's
functions, product by product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """A loop that is being written: where it begins."""

    name: str
    line: int
    depth: int
    extent: int
    conditions: list[str] = field(default_factory=list)
    """What is asked inside it around what is being written."""
    before: list[str] = field(default_factory=list)
    """Lines that are to stand before it."""


class ByteTileWriter(CStatementWriter):
    """Writes tiles of products; the loops that are none its subclass does."""

    def __init__(self, dialect: Dialect, program: ir.Program, target: Target) -> None:
        super().__init__(dialect, program)
        self.target = target
        self._has_dsp = DSP in target.features.split(",")
        self._has_vectors = MVE in target.features.split(",")
        self._has_riscv_vectors = RISCV_VECTORS in target.features.split(",")
        self._pairs_loads = DUAL_ISSUE in target.features.split(",")
        self._in_plain = False
        """Whether what is being written is beside assembler for the same."""
        self._held: tuple[ir.Load, tuple[str, ...]] | None = None
        """Weights of a window that are in registers around the loop that is being written."""
        self._kept: dict[str, str] = {}
        """What has been loaded of constants before that loop, by its text."""
        self._around: list[_Around] = []
        """Loops that are being written."""

    def _tile(self, loop: ir.For) -> bool:
        """A tile of sums over one run of words as assembler; False where it is none."""
        if self._in_plain or loop.kind not in ("serial", "unroll"):
            return False
        forms = self._arm_forms(loop) if self._has_dsp else []
        forms = self._riscv_forms(loop) if self._has_riscv_vectors else forms
        written = [(condition, form) for condition, form in forms if form is not None]
        if not written:
            return False
        self.helpers.type("uint32")
        for number, (condition, form) in enumerate(written):
            self.lines.append(condition.replace("#if", "#elif") if number else condition)
            for line in form:
                self.line(line)
        self.lines.append("#else")
        self._in_plain = True
        self.loop(loop)
        self._in_plain = False
        self.lines.append("#endif")
        return True

    def _arm_forms(self, loop: ir.For) -> list[tuple[str, list[str] | None]]:
        """The tile by vectors, and as assembler, behind what is asked of the compiler."""
        tile = tile_of(self, loop) if loop.kind == "serial" else None
        window = self._window(loop) if tile is None and self._held else None
        lines = (self._widened(tile) or tile.lines()) if tile else None
        vectors = vector_lines(tile) if tile and self._has_vectors else None
        if window and self._held and window.weights == self._held[0]:
            columns = column_tile_of(self, window, self._held[1])
            lines = columns.lines() if columns else None
        if vectors is not None:
            self.helpers.type("int32")
            self.helpers.written(INTRINSICS, INTRINSICS)
        return [(VECTORS, vectors), (TILES, lines)]

    def _riscv_forms(self, loop: ir.For) -> list[tuple[str, list[str] | None]]:
        """The same by RISC-V's vectors."""
        tile = tile_of(self, loop) if loop.kind == "serial" else None
        lines = riscv_tile.vector_lines(tile) if tile else self._channels(loop)
        if lines is not None:
            self.helpers.written(riscv_tile.CHANGED, riscv_tile.CHANGED)
        return [(riscv_tile.VECTORS, lines)]

    def _channels(self, loop: ir.For) -> list[str] | None:
        """A window of one channel for all neighbouring ones, at the first of them; None where the
        loop around it is none over channels, or where what is asked depends on them."""
        window = self._window(loop)
        around = self._around[-1] if self._around else None
        if window is None or around is None or any_size((around.extent,)):
            return None
        if any(re.search(rf"\b{around.name}\b", asked) for asked in around.conditions):
            return None
        found = riscv_window.channel_tile_of(self, window, around.name, around.extent)
        memory = self.memory(found.nbytes) if found else None
        return None if found is None or memory is None else found.lines(memory)

    def _counted(self, var: str, extent: int, body: tuple[ir.Stmt, ...]) -> None:
        around = _Around(
            name=self.identifier(var), line=len(self.lines), depth=self.depth, extent=extent
        )
        self._around.append(around)
        super()._counted(var, extent, body)
        self._around.pop()
        self.lines[around.line : around.line] = around.before

    def guard(self, stmt: ir.If) -> None:
        asked = self.condition(stmt.bounds)
        around = self._around[-1].conditions if self._around else []
        around.append(asked if isinstance(asked, str) else "")
        super().guard(stmt)
        around.pop()

    def _widened(self, tile: DotTile) -> list[str] | None:
        """The tile by rows that are widened before the loop around it, which is written there;
        None where that loop moves them."""
        around = self._around[-1] if self._around and not self._has_vectors else None
        if around is None or not is_widened(tile) or any_size((around.extent,)):
            return None
        asked = " && ".join(f"({c})" for c in around.conditions if c)
        if re.search(rf"\b{around.name}\b", f"{tile.rows.pointer} {asked}"):
            return None
        rows = WidenedRows(tile=tile, place=f"f{len(self._around)}_{len(around.before)}")
        memory = self.memory(rows.nbytes)
        if memory is None:
            return None
        self.helpers.type("uint32")
        self.helpers.written(ACLE, ACLE)
        side = tile.rows
        for text in (
            routine(rows.rows, self._pairs_loads),
            widening(rows.rows, side.kind, side.dtype),
        ):
            self.helpers.written(text, f"{TILES}\n{text}\n#endif")
        widened = rows.lines()
        if asked:
            widened = [f"if ({asked}) {{", *(f"    {line}" for line in widened), "}"]
        space = "    " * around.depth
        lines_before = [f"u32 *const {rows.place} = (u32 *)({memory});", *widened]
        unused = f"{space}(void)workspace;"
        around.before.extend(
            [TILES, *(space + line for line in lines_before), "#else", unused, "#endif"]
        )
        return rows.tile_lines()

    def memory(self, nbytes: int) -> str | None:  # noqa: ARG002
        """C of memory for one call; None where there is none."""
        return None

    def _window(self, stmt: ir.Stmt) -> ByteColumns | None:
        return window_of(
            stmt, lambda name: self.buffers[name].dtype if name in self.buffers else ""
        )

    def _window_below(self, loop: ir.For) -> ByteColumns | None:
        """A window inside whose weights are the same all through the loop, its outermost such."""
        if not self._has_dsp or self._held or loop.kind != "serial" or self._in_plain:
            return None
        inside = {x.var for x in ir.walk((loop,)) if isinstance(x, ir.For) and x.extent != 1}
        for stmt in ir.walk(loop.body):
            window = self._window(stmt)
            if window is None or window.weights.buffer not in self.constants:
                continue
            read = {v for i in window.weights.indices for v in i.vars()}
            if read & inside == {x.var for x in window.over}:
                return window
        return None

    def _around_window(self, loop: ir.For, window: ByteColumns) -> None:
        """The loop, behind what it reads of constants again and again."""
        rows, taps = window.over
        held = HeldWeights(rows=rows.extent, taps=taps.extent)
        env = dict(self.env)
        self.env.update((x.var, 0) for x in ir.walk((loop,)) if isinstance(x, ir.For))

        def weight(row: int, tap: int) -> str:
            self.env.update({rows.var: row, taps.var: tap})
            return CStatementWriter.load(self, window.weights).text

        values = held.values(weight)
        loads = invariant_loads(loop, list(self.constants))
        kept = [CStatementWriter.load(self, x) for x in loads]
        self.env.clear()
        self.env.update(env)
        names = tuple(f"w{n}" for n in range(held.words))
        with self.block(""):
            self.helpers.type("uint32")
            self.helpers.written(HALVES, f"{TILES}\n{HALVES}\n#endif")
            self.lines.append(TILES)
            for name, value in zip(names, values, strict=True):
                self.line(f"const u32 {name} = {value};")
            self.lines.append("#endif")
            for number, now in enumerate(x for x in kept if x.lanes == 1 and x.dtype != "bool"):
                self.line(f"const {self.helpers.type(now.dtype)} c{number} = {now.text};")
                self._kept[now.text] = f"c{number}"
            self._held = window.weights, names
            self.loop(loop)
            self._held = None
            self._kept.clear()
