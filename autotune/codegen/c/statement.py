"""Statements of a program as lines of the C family. In: statements. Out: text, indented.

Unrolled loops are written out; vector loops become expressions on vectors, statement by statement,
and a statement that cannot be one becomes a loop over the lanes. Register buffers are variables,
one per element or vector, or an array where an index is not known when the text is written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from autotune.codegen.c.amount import amount_text
from autotune.codegen.c.dialect import Dialect, float_constant
from autotune.codegen.c.index import CLane, CLinear, NotVectorError
from autotune.codegen.c.overflow import SIGNED, sums_overflow
from autotune.codegen.c.value import CValueWriter
from autotune.codegen.dispatch import StatementDispatch
from autotune.codegen.expression import Val
from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.rewrite import loads_of, stores_of
from autotune.sizes import greatest
from autotune.types import ITEM_BYTES

MAX_LINES = 200_000
"""Lines of a function: more would take a compiler minutes."""
ALIGN = 64
"""Bytes that scratch buffers begin at multiples of: a cache line, and the widest vector."""


class CStatementWriter(CValueWriter, StatementDispatch):
    """Writes statements; what a loop over threads is, the languages' writers say."""

    def __init__(self, dialect: Dialect, program: ir.Program) -> None:
        super().__init__(dialect)
        self.program = program
        self.constants = {p.name for p in program.params if p.constant}
        self.ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        if len(self.lines) > MAX_LINES:
            raise BuildError(f"the program unrolls to more than {MAX_LINES} lines")
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head { ... }`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def stmt(self, stmt: ir.Stmt) -> None:
        """A statement; inside a vector loop as vectors, or else lane by lane."""
        if self.lanes == 1:
            super().stmt(stmt)
            return
        lines, cells = len(self.lines), dict(self.cells)
        try:
            super().stmt(stmt)
        except NotVectorError:
            del self.lines[lines:]
            self.cells = cells
            self._lane_by_lane(stmt)

    def _lane_by_lane(self, stmt: ir.Stmt) -> None:
        """A loop over the lanes; written out where they are lanes of register variables."""
        names = {load.buffer for load in loads_of((stmt,))}
        names |= {store.buffer for store in stores_of((stmt,))}
        if any(name in self.buffers and self.in_registers(name) for name in names):
            for lane in range(self.lanes):
                with self.one_lane(lane):
                    super().stmt(stmt)
            return
        (name,) = (v for v, now in self.env.items() if isinstance(now, CLane))
        lanes = self.lanes
        self.lanes = 1
        if self.written_out(name, stmt):
            for lane in range(lanes):
                self.env[name] = lane
                self.stmt(stmt)
        else:
            self._counted(name, lanes, (stmt,))
        self.lanes, self.env[name] = lanes, CLane()

    def written_out(self, lane: str, stmt: ir.Stmt) -> bool:  # noqa: ARG002
        """Whether a statement that is no vector's is written once for each lane, not in a loop."""
        return False

    # -------------------------------------------------------------------------------------- loops

    def loop(self, loop: ir.For) -> None:
        if loop.kind == "vector":
            self._vector(loop)
        elif loop.kind in ("unroll", "dot") or loop.extent == 1:
            for i in range(loop.extent):
                self.env[loop.var] = i
                self.body(loop.body)
        elif loop.kind in ("serial", "parallel", "tile"):
            self._counted(loop.var, loop.extent, loop.body)
        else:
            raise BuildError(f"no {loop.kind} loops in this language, got {loop.var}")

    def _counted(self, var: str, extent: int, body: tuple[ir.Stmt, ...]) -> None:
        name = self.identifier(var)
        with self.block(f"for (ix {name} = 0; {name} < {amount_text(extent)}; {name}++)"):
            self.env[var] = name
            self.body(body)

    def _vector(self, loop: ir.For) -> None:
        if self.lanes > 1:
            raise BuildError(f"vector loop {loop.var} is inside another")
        if loop.extent == 1:
            self.env[loop.var] = 0
            self.body(loop.body)
        elif loop.extent not in self.dialect.lanes:
            self._counted(loop.var, loop.extent, loop.body)
        else:
            self.env[loop.var], self.lanes = CLane(), loop.extent
            self.body(loop.body)
            self.lanes = 1
            del self.env[loop.var]

    def guard(self, stmt: ir.If) -> None:
        condition = self.condition(stmt.bounds)
        if condition is True:
            self.body(stmt.body)
        elif condition:
            with self.block(f"if ({condition})"):
                self.body(stmt.body)

    # ------------------------------------------------------------------------------------- memory

    @abstractmethod
    def alloc(self, stmt: ir.Alloc) -> None:
        """A buffer and the statements that see it, where the dialect has such memory."""

    def registers(self, stmt: ir.Alloc) -> None:
        """A register buffer and the statements that see it."""
        buffer = stmt.buffer
        self.declare(buffer)
        if self._is_modular(stmt):
            self.modular_sums.add(buffer.name)
        with self.block(""):
            at = len(self.lines)
            self.body(stmt.body)
            self.lines[at:at] = self._declarations(buffer)
        self.modular_sums.discard(buffer.name)

    def _is_modular(self, stmt: ir.Alloc) -> bool:
        """Whether the buffer has sums or products that may wrap around. Variables of these are
        unsigned: of several signed ones that unsigned numbers are added to, GCC 12 loses terms
        (x86-64, -O2)."""
        buffer = stmt.buffer
        known = {x.buffer.name: x.buffer for x in ir.walk((stmt,)) if isinstance(x, ir.Alloc)}
        return (
            buffer.dtype in SIGNED
            and not self.dialect.opencl
            and any(
                x.buffer == buffer.name
                and self._modular_sum(x, buffer.dtype, {**self.buffers, **known})
                for x in stores_of(stmt.body)
            )
        )

    def declare(self, buffer: ir.Buffer) -> str:
        """The buffer's name in the code."""
        self.buffers[buffer.name] = buffer
        self.names[buffer.name] = name = self.identifier(buffer.name)
        return name

    def _declarations(self, buffer: ir.Buffer) -> list[str]:
        """Variables of a register buffer, known once its statements are written."""
        name, pad = self.names[buffer.name], "    " * self.depth
        if buffer.name in self.arrays:
            before, after = buffer.layout.span(buffer.shape)
            if before:
                raise BuildError(f"register buffer {buffer.name} has a halo")
            return [f"{pad}{self.helpers.type(buffer.dtype)} {name}[{after}];"]
        out = []
        for (owner, at), lanes in self.cells.items():
            if owner == buffer.name:
                unsigned = lanes == 1 and buffer.name in self.modular_sums
                dtype = f"u{buffer.dtype}" if unsigned else buffer.dtype
                out.append(f"{pad}{self.helpers.type(dtype, lanes)} {name}{at};")
        return out

    def prefetch(self, stmt: ir.Prefetch) -> None:
        buffer = self.buffers[stmt.buffer]
        place = self.place(buffer, self.flat(buffer, stmt.indices))
        call = "prefetch({}, 1)" if self.dialect.opencl else "__builtin_prefetch({})"
        self.line(call.format(place) + ";")

    # ------------------------------------------------------------------------------------- stores

    def store(self, stmt: ir.Store) -> None:
        buffer = self.buffers[stmt.buffer]
        try:
            at = self.flat(buffer, stmt.indices)
        except NotVectorError:
            if self.lanes == 1 or stmt.combine or buffer.dtype == "bool":
                raise
            self._scatter(stmt, buffer)
            return
        if self.lanes > 1 and not at.lane:
            self._store_reduced(stmt, buffer, at)
        elif self.lanes > 1 and at.lane != 1:
            if stmt.combine or buffer.dtype == "bool":
                raise NotVectorError
            self._scatter(stmt, buffer)
        else:
            self._assign(buffer, at, self._combined(stmt, buffer.dtype))

    def _assign(self, buffer: ir.Buffer, at: CLinear, value: Val) -> None:
        """Write one element, or one per lane side by side."""
        lanes = self.lanes if at.lane else 1
        value = self.splat(value, lanes)
        if self.in_registers(buffer.name):
            self.line(f"{self.cell(buffer, at).text} = {value.text};")
        elif lanes > 1:
            if buffer.dtype == "bool":
                raise NotVectorError
            kind = self.helpers.type(buffer.dtype, lanes)
            self.line(f"{kind}_store({self.place(buffer, at)}, {value.text});")
        else:
            self.helpers.type(buffer.dtype)
            self.line(f"{self.names[buffer.name]}[{at.text}] = {value.text};")

    def _combined(self, stmt: ir.Store, dtype: str) -> Val:
        """What is stored: the value, or the old element combined with it."""
        if not stmt.combine:
            return self.convert(self.value(stmt.value), dtype)
        old = self.load(ir.Load(stmt.buffer, stmt.indices))
        if stmt.combine != "sum" or not dtype.startswith("float"):
            value = self.convert(self.value(stmt.value), dtype)
            modular = self._modular_sum(stmt, dtype, self.buffers)
            return self._merge(stmt.combine, value, old, modular)
        product = stmt.value
        if isinstance(product, ir.Apply) and product.fn == "mul":
            first, second = product.args
            if isinstance(first, ir.Table):
                return self._table_product(self.table(first), second, old)
        value = self.convert(self.value(product), dtype)
        return Val(f"{value.text} + {old.text}", dtype, max(value.lanes, old.lanes))

    def _merge(self, combine: str, value: Val, old: Val, modular: bool) -> Val:
        lanes = max(value.lanes, old.lanes)
        both = [self.splat(value, lanes), self.splat(old, lanes)]
        return (self.modular if modular else self.function)(_COMBINED[combine], both)

    def _modular_sum(self, stmt: ir.Store, dtype: str, buffers: Mapping[str, ir.Buffer]) -> bool:
        """Whether what is added up, or multiplied, may leave the type."""
        if stmt.combine == "prod":
            return dtype in SIGNED
        return stmt.combine == "sum" and sums_overflow(stmt.value, dtype, buffers)

    def _table_product(self, factor: float, value: ir.Value, old: Val) -> Val:
        """old + factor * value; a factor of 0, 1 or -1 costs no multiplication."""
        if factor == 0:
            return old
        now = self.convert(self.value(value), old.dtype)
        lanes = max(now.lanes, old.lanes)
        if abs(factor) == 1:
            text = f"{old.text} {'+' if factor > 0 else '-'} {now.text}"
        else:
            text = f"{float_constant(factor, old.dtype)} * {now.text} + {old.text}"
        return Val(text, old.dtype, lanes)

    def _store_reduced(self, stmt: ir.Store, buffer: ir.Buffer, at: CLinear) -> None:
        """All lanes combined into one element."""
        if not stmt.combine:
            raise BuildError(f"{buffer.name} is written by every lane")
        value = self.convert(self.splat(self.value(stmt.value), self.lanes), buffer.dtype)
        kind = self.helpers.type(buffer.dtype, self.lanes)
        name = _COMBINED[stmt.combine] if stmt.combine in ("max", "min", "peak") else stmt.combine
        text = self.helpers.call(f"reduce_{name}", kind, value.text)
        with self.one_lane(None):
            old = self.load(ir.Load(stmt.buffer, stmt.indices))
            modular = self._modular_sum(stmt, buffer.dtype, self.buffers)
            merged = self._merge(stmt.combine, Val(text, buffer.dtype, 1), old, modular)
            self._assign(buffer, at, merged)

    def _scatter(self, stmt: ir.Store, buffer: ir.Buffer) -> None:
        """Lanes that do not lie side by side: one store each."""
        value = self.splat(self.convert(self.value(stmt.value), buffer.dtype), self.lanes)
        kind = self.helpers.type(buffer.dtype, self.lanes)
        with self.block(""):
            self.line(f"{kind} lanes = {value.text};")
            for lane in range(self.lanes):
                with self.one_lane(lane):
                    at = self.flat(buffer, stmt.indices)
                    one = Val(self.dialect.lane("lanes", lane), buffer.dtype, 1)
                    self._assign(buffer, at, one)


_COMBINED = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "peak": "max",
}  # fmt: skip
"""Function of the code for a combiner: the one that is called `max` may drop a NaN."""


class Workspace:
    """The layout of scratch buffers in a call's workspace."""

    def __init__(self) -> None:
        self.size = 0
        self.offsets: dict[str, int] = {}

    def add(self, buffer: ir.Buffer, copies: int = 1) -> tuple[int, int]:
        """(byte offset of element (0, 0, ...), bytes from one copy to the next)."""
        item = ITEM_BYTES[buffer.dtype]
        before, after = buffer.layout.span(buffer.shape)
        head = -(-before * item // ALIGN) * ALIGN
        size = head + -(-after * item // ALIGN) * ALIGN
        start = self.size + head
        self.size += size * copies
        self.offsets[buffer.name] = start
        return start, size


def index_type(program: ir.Program) -> str:
    """Element type of indices: 32 bits where no buffer is larger."""
    largest = 0
    for buffer in (
        *program.params,
        *(s.buffer for s in ir.walk(program.body) if isinstance(s, ir.Alloc)),
    ):
        before, after = buffer.layout.span(buffer.shape)
        largest = max(largest, greatest(before + after))
    return "i32" if largest < 1 << 30 else "i64"
