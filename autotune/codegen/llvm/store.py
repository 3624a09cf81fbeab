"""Stores as LLVM IR: plain, combined, masked, by single lanes, and reductions over the lanes."""

from __future__ import annotations

from collections.abc import Callable

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import Linear
from autotune.codegen.llvm.math import MathWriter
from autotune.codegen.llvm.move import MoveWriter
from autotune.codegen.llvm.text import suffix_text, type_text
from autotune.errors import BuildError
from autotune.program.ir import Apply, Buffer, Load, Store, Table, Value
from autotune.schedule.loops.rfactor import identity
from autotune.types import ITEM_BYTES, is_unsigned

_Old = Callable[[], Val]


class StoreWriter(MoveWriter):
    """Writes stores."""

    def store(self, stmt: Store) -> None:
        buffer = self.buffers[stmt.buffer]
        if buffer.scope == "register":
            self._store_cell(stmt, buffer)
            return
        if self.store_moved(stmt):
            return
        if self.lanes > 1 and self.irregular(stmt.indices):
            self._scatter(stmt, buffer)
            return
        offset = self.linear(self.flat(buffer, stmt.indices))
        if self.lanes > 1 and offset.lane == 0:
            self._store_reduced(stmt, buffer, offset)
        elif offset.lane in (0, 1):
            value = self._combined(stmt, buffer.dtype, lambda: self.load(_target(stmt)))
            self._write(buffer, offset, value)
        else:
            self._scatter(stmt, buffer)

    def _store_cell(self, stmt: Store, buffer: Buffer) -> None:
        cell, lanes = self.cell(buffer, stmt.indices)
        kind = type_text(buffer.dtype, lanes)
        if lanes == 1 and self.lanes > 1:
            if not stmt.combine:
                raise BuildError(f"{buffer.name} is written by every lane")
            old = Val(self.text.read(cell, kind), buffer.dtype, 1)
            value = self._reduced(stmt, buffer.dtype, old)
        else:
            value = self._combined(
                stmt, buffer.dtype, lambda: Val(self.text.read(cell, kind), buffer.dtype, lanes)
            )
            value = self.splat(value, lanes)
            if self.mask is not None and lanes > 1:
                old = Val(self.text.read(cell, kind), buffer.dtype, lanes)
                mask = type_text("bool", lanes)
                text = f"select {mask} {self.mask}, {kind} {value.text}, {kind} {old.text}"
                value = Val(self.text.emit(text), buffer.dtype, lanes)
        self.text.write(cell, kind, value.text)

    def _combined(self, stmt: Store, dtype: str, old: _Old) -> Val:
        """What is stored: the value, or the old element combined with it."""
        if not stmt.combine:
            return self.convert(self.value(stmt.value), dtype)
        if stmt.combine == "sum" and (dtype.startswith("float") or self.dot):
            return self._accumulate(stmt.value, dtype, old)
        value = self.convert(self.value(stmt.value), dtype)
        return self._merge(stmt.combine, value, old())

    def _merge(self, combine: str, value: Val, old: Val) -> Val:
        lanes = max(value.lanes, old.lanes)
        fn = {"sum": "add", "prod": "mul"}.get(combine, combine)
        return self.binary(fn, self.splat(value, lanes), self.splat(old, lanes))

    def _accumulate(self, value: Value, dtype: str, old: _Old) -> Val:
        """old + value, by a fused multiply-add where the value is a product."""
        if not (isinstance(value, Apply) and value.fn == "mul"):
            return self._merge("sum", self.convert(self.value(value), dtype), old())
        first, second = value.args
        if self.dot:
            return self.dot_product(first, second, old())
        if isinstance(first, Table):
            return self._table_product(self.table(first), second, dtype, old)
        a, b = self.value(first), self.value(second)
        before = old()
        lanes = max(a.lanes, b.lanes, before.lanes)
        a, b, before = (self.splat(v, lanes) for v in (a, b, before))
        kind = type_text(dtype, lanes)
        short = f"v{lanes}" if lanes > 1 else ""
        name = f"llvm.fmuladd.{short}{'f32' if dtype == 'float32' else 'f64'}"
        self.text.declare(name, f"declare {kind} @{name}({kind}, {kind}, {kind})")
        given = f"({kind} {a.text}, {kind} {b.text}, {kind} {before.text})"
        return Val(self.text.emit(f"call nsz contract {kind} @{name}{given}"), dtype, lanes)

    def _table_product(self, factor: float, value: Value, dtype: str, old: _Old) -> Val:
        """old + factor * value; a factor of 0, 1 or -1 costs no multiplication."""
        before = old()
        if factor == 0:
            return before
        now = self.convert(self.value(value), dtype)
        lanes = max(now.lanes, before.lanes)
        now, before = self.splat(now, lanes), self.splat(before, lanes)
        writer = MathWriter(self.text, lanes, dtype)
        if before.text == writer.const(0.0):
            first = now.text if factor == 1 else writer.op("fmul", writer.const(factor), now.text)
            return Val(first, dtype, lanes)
        if abs(factor) == 1:
            return self.binary("add" if factor > 0 else "sub", before, now)
        return Val(writer.fma(writer.const(factor), now.text, before.text), dtype, lanes)

    def _write(self, buffer: Buffer, offset: Linear, value: Val) -> None:
        """Store one element, or one per lane side by side."""
        lanes = self.lanes if offset.lane else 1
        value = self._to_memory(self.splat(value, lanes))
        pointer, align = self.address(buffer, offset), ITEM_BYTES[buffer.dtype]
        kind = type_text(buffer.dtype, lanes, memory=True)
        if self.mask is None or lanes == 1:
            self.text.line(f"store {kind} {value.text}, ptr {pointer}, align {align}")
            return
        only = _only_lane(self.mask)
        if only is not None:
            item = type_text(buffer.dtype, 1, memory=True)
            one = self.text.emit(f"extractelement {kind} {value.text}, i64 {only}")
            place = self.text.emit(f"getelementptr {item}, ptr {pointer}, i64 {only}")
            self.text.line(f"store {item} {one}, ptr {place}, align {align}")
            return
        part = min(lanes, self.masked_lanes(buffer))
        if part == lanes:
            self._masked_store(buffer, value.text, pointer, self.mask, lanes)
            return
        for number, (place, mask) in enumerate(self.cut(buffer, pointer, lanes, self.mask)):
            of = ", ".join(f"i32 {number * part + lane}" for lane in range(part))
            shuffle = f"shufflevector {kind} {value.text}, {kind} poison, <{part} x i32> <{of}>"
            self._masked_store(buffer, self.text.emit(shuffle), place, mask, part)

    def _masked_store(
        self, buffer: Buffer, value: str, pointer: str, mask: str, lanes: int
    ) -> None:
        short = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32"}
        name = f"llvm.masked.store.v{lanes}{short.get(buffer.dtype, 'i8')}.p0"
        kind, flags = type_text(buffer.dtype, lanes, memory=True), f"<{lanes} x i1>"
        self.text.declare(name, f"declare void @{name}({kind}, ptr, i32, {flags})")
        align = ITEM_BYTES[buffer.dtype]
        given = f"{kind} {value}, ptr {pointer}, i32 {align}, {flags} {mask}"
        self.text.line(f"call void @{name}({given})")

    def _to_memory(self, value: Val) -> Val:
        if value.dtype != "bool":
            return value
        source, kind = type_text("bool", value.lanes), type_text("bool", value.lanes, memory=True)
        return Val(self.text.emit(f"zext {source} {value.text} to {kind}"), "bool", value.lanes)

    def _scatter(self, stmt: Store, buffer: Buffer) -> None:
        """Lanes that do not lie side by side: one store each."""
        lanes, mask = self.lanes, self.mask
        if stmt.combine:
            raise BuildError(f"{buffer.name} is combined into by lanes far apart")
        value = self._to_memory(
            self.splat(self.convert(self.value(stmt.value), buffer.dtype), lanes)
        )
        kind = type_text(buffer.dtype, lanes, memory=True)
        for lane in range(lanes):
            with self.one_lane(lane):
                if mask is None:
                    self._store_lane(stmt, buffer, value, kind, lane)
                    continue
                bit = self.text.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")
                with self.text.when(bit):
                    self._store_lane(stmt, buffer, value, kind, lane)

    def _store_lane(self, stmt: Store, buffer: Buffer, value: Val, kind: str, lane: int) -> None:
        item = type_text(buffer.dtype, 1, memory=True)
        one = self.text.emit(f"extractelement {kind} {value.text}, i64 {lane}")
        pointer = self.address(buffer, self.linear(self.flat(buffer, stmt.indices)))
        align = ITEM_BYTES[buffer.dtype]
        self.text.line(f"store {item} {one}, ptr {pointer}, align {align}")

    def _store_reduced(self, stmt: Store, buffer: Buffer, offset: Linear) -> None:
        if not stmt.combine:
            raise BuildError(f"{buffer.name} is written by every lane")
        pointer, kind = self.address(buffer, offset), type_text(buffer.dtype, 1, memory=True)
        align = ITEM_BYTES[buffer.dtype]
        old = self.text.emit(f"load {kind}, ptr {pointer}, align {align}")
        value = self._reduced(stmt, buffer.dtype, Val(old, buffer.dtype, 1))
        self.text.line(f"store {kind} {value.text}, ptr {pointer}, align {align}")

    def _reduced(self, stmt: Store, dtype: str, old: Val) -> Val:
        """The old scalar combined with all lanes of the value."""
        combine = stmt.combine or "sum"
        value = self.splat(self.convert(self.value(stmt.value), dtype), self.lanes)
        kind = type_text(dtype, self.lanes)
        if self.mask is not None:
            neutral = self.splat(self.value(identity(combine, dtype)), self.lanes).text
            mask = type_text("bool", self.lanes)
            text = f"select {mask} {self.mask}, {kind} {value.text}, {kind} {neutral}"
            value = Val(self.text.emit(text), dtype, self.lanes)
        return self._across(combine, value, old)

    def _across(self, combine: str, value: Val, old: Val) -> Val:
        """An old scalar combined with all lanes of a value."""
        dtype, lanes = value.dtype, value.lanes
        kind, scalar = type_text(dtype, lanes), type_text(dtype, 1)
        real = dtype.startswith("float")
        if real and combine in ("max", "min", "peak"):
            return self._merge(combine, self._extreme(combine, value), old)
        op = _REDUCE[combine][0 if real else 1 + (is_unsigned(dtype))]
        name = f"llvm.vector.reduce.{op}.{suffix_text(dtype, lanes)}"
        if not real:
            self.text.declare(name, f"declare {scalar} @{name}({kind})")
            one = self.text.emit(f"call {scalar} @{name}({kind} {value.text})")
            return self._merge(combine, Val(one, dtype, 1), old)
        self.text.declare(name, f"declare {scalar} @{name}({scalar}, {kind})")
        given = f"({scalar} {old.text}, {kind} {value.text})"
        return Val(self.text.emit(f"call nsz reassoc {scalar} @{name}{given}"), dtype, 1)

    def _extreme(self, combine: str, value: Val) -> Val:
        """Largest or smallest lane, by halves: LLVM's reduction goes lane by lane where there may
        be values that are not numbers."""
        if value.lanes == 1:
            return value
        half, odd = divmod(value.lanes, 2)
        kind = type_text(value.dtype, value.lanes)
        parts = []
        for first in (0, half):
            picked = ", ".join(f"i32 {first + i}" for i in range(half))
            text = f"shufflevector {kind} {value.text}, {kind} poison, <{half} x i32> <{picked}>"
            if half == 1:
                text = f"extractelement {kind} {value.text}, i64 {first}"
            parts.append(Val(self.text.emit(text), value.dtype, half))
        out = self._extreme(combine, self.binary(combine, *parts))
        if not odd:
            return out
        last = self.text.emit(f"extractelement {kind} {value.text}, i64 {value.lanes - 1}")
        return self.binary(combine, out, Val(last, value.dtype, 1))


_REDUCE = {
    "sum": ("fadd", "add", "add"), "prod": ("fmul", "mul", "mul"), "max": ("", "smax", "umax"),
    "peak": ("", "smax", "umax"), "min": ("", "smin", "umin"),
}  # fmt: skip


def _only_lane(mask: str) -> int | None:
    """The only lane of a constant mask that has one. LLVM makes one scalar store of a masked one
    of those, of the width before truncation: of int32 as a byte, over three bytes behind it."""
    lanes = mask.strip("<>").split(", ")
    return lanes.index("i1 true") if lanes.count("i1 true") == 1 else None


def _target(stmt: Store) -> Load:
    return Load(stmt.buffer, stmt.indices)
