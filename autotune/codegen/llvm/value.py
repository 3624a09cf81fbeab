"""Values of a program as LLVM IR. In: IR values. Out: names of LLVM values.

A value with one lane is uniform and is splat where a vector is needed.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.codegen.expression import Val
from autotune.codegen.llvm.arithmetic import float_text
from autotune.codegen.llvm.bound import BoundWriter
from autotune.codegen.llvm.element import literal
from autotune.codegen.llvm.math import SMALLEST_NORMAL
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.errors import BuildError
from autotune.program.ir import Apply, Const, IndexValue, Load, Select, Table, Value, fn
from autotune.program.signs import lowest


class ValueWriter(BoundWriter):
    """Writes values into a function; the statement writer builds on it."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.never_negative: frozenset[str] = frozenset()
        """Buffers known to hold no negative number."""
        self.rounds_to_integers = False
        """Whether the target has an instruction that makes the nearest integer of a float."""

    def value(self, value: Value) -> Val:
        """Write a value; lanes is 1 where it does not depend on the vector loop."""
        if isinstance(value, Const):
            return Val(literal(value.value, value.dtype), value.dtype, 1)
        if isinstance(value, Load):
            return self.load(value)
        if isinstance(value, Apply):
            return self._apply(value)
        if isinstance(value, Select):
            return self._select(value)
        if isinstance(value, Table):
            return Val(float_text(self.table(value)), "float32", 1)
        return self._index_value(value)

    def table(self, value: Table) -> float:
        """A table's entry; its indices must be constant here."""
        row, column = self.linear(value.row), self.linear(value.column)
        if row.terms or column.terms or row.lane or column.lane:
            raise BuildError("a table is indexed by a loop that is not unrolled")
        return value.values[row.const][column.const]

    def _apply(self, value: Apply) -> Val:
        if self.rounds_to_integers and value.fn in ("to_uint8", "to_int8"):
            byte = self._to_bytes(value.args[0], value.fn[3:])
            if byte is not None:
                return byte
        args = [self.value(a) for a in value.args]
        last = value.args[-1]
        if value.fn == "pow" and isinstance(last, Const) and args[0].dtype.startswith("float"):
            return self.constant_power(args[0], args[1], float(last.value))
        if value.fn == "rsqrt" and args[0].dtype == "float32" and self._is_normal(last):
            writer = self.math(self.text, args[0].lanes)
            return Val(writer.rsqrt_of_normal(args[0].text), "float32", args[0].lanes)
        return self.function(value.fn, args)

    def _to_bytes(self, value: Value, dtype: str) -> Val | None:
        """A rounded number as a byte, by the instruction that converts and rounds: of NaN it makes
        a number whose last byte is 0. None where a number is not rounded first, is no float32, or
        is not limited to what a byte holds."""
        near, limits = unrounded(value), np.iinfo(dtype)
        low, high = limits_of(value)
        fits = limits.min <= low and high <= limits.max
        found = self.value(near) if near is not None and fits else None
        if found is None or found.dtype != "float32":
            return None
        real, whole, byte = (type_text(d, found.lanes) for d in ("float32", "int32", dtype))
        name = "llvm.lrint.i32.f32"
        if found.lanes > 1:
            name = f"llvm.lrint.v{found.lanes}i32.v{found.lanes}f32"
        self.text.declare(name, f"declare {whole} @{name}({real})")
        count = self.text.emit(f"call {whole} @{name}({real} {found.text})")
        return Val(self.text.emit(f"trunc {whole} {count} to {byte}"), dtype, found.lanes)

    def _is_normal(self, value: Value) -> bool:
        """Whether a number cannot be so small that roots of it need care."""
        return lowest(value, self.never_negative) >= SMALLEST_NORMAL

    def _index_value(self, value: IndexValue) -> Val:
        if self.lanes > 1 and self.irregular((value.index,)):
            return self._each_lane(value)
        linear = self.linear(value.index)
        base = Val(self.scalar(linear)[0], "int64", 1)
        if linear.lane:
            step = self.known_lane(linear)
            steps = ", ".join(f"i64 {i * step}" for i in range(self.lanes))
            full = self.splat(base, self.lanes)
            kind = type_text("int64", self.lanes)
            base = Val(self.text.emit(f"add {kind} {full.text}, <{steps}>"), "int64", self.lanes)
        return self.convert(base, value.dtype)

    def _each_lane(self, value: IndexValue) -> Val:
        """An index that divides the vector loop's variable: constants, or computed one by one."""
        known = self.each_lane(value.index)
        if all(i.is_const for i in known):
            item = type_text(value.dtype, 1)
            lanes = ", ".join(f"{item} {literal(i.const, value.dtype)}" for i in known)
            return Val(f"<{lanes}>", value.dtype, self.lanes)
        out = Val("poison", value.dtype, self.lanes)
        for lane in range(self.lanes):
            with self.one_lane(lane):
                element = self._index_value(value)
            out = self.insert(out, element, lane)
        return out

    def _select(self, value: Select) -> Val:
        condition = self.condition(value.bounds)
        if isinstance(condition, bool):
            return self.value(value.then if condition else value.other)
        flag, lanes = condition
        if lanes > 1:
            return self._blend(value, flag)
        return self._branch(value, flag)

    def _blend(self, value: Select, flag: str) -> Val:
        saved, kind = self.mask, type_text("bool", self.lanes)
        self.mask = self.under(flag)
        then = self.splat(self.value(value.then), self.lanes)
        self.mask = saved
        inverse = self.text.emit(f"xor {kind} {flag}, splat (i1 true)")
        self.mask = self.under(inverse)
        other = self.splat(self.value(value.other), self.lanes)
        self.mask = saved
        data = type_text(then.dtype, self.lanes)
        text = f"select {kind} {flag}, {data} {then.text}, {data} {other.text}"
        return Val(self.text.emit(text), then.dtype, self.lanes)

    def _branch(self, value: Select, flag: str) -> Val:
        lanes, text = self.lanes, self.text
        first, second, done = text.label(), text.label(), text.label()
        text.branch(f"i1 {flag}, label %{first}, label %{second}")
        arms: list[tuple[Val, str]] = []
        for label, arm in ((first, value.then), (second, value.other)):
            text.start(label)
            with text.region():
                arms.append((self.splat(self.value(arm), lanes), text.block))
            text.branch(f"label %{done}")
        text.start(done)
        dtype = arms[0][0].dtype
        pairs = ", ".join(f"[ {v.text}, %{block} ]" for v, block in arms)
        return Val(text.emit(f"phi {type_text(dtype, lanes)} {pairs}"), dtype, lanes)


def limits_of(value: Value) -> tuple[float, float]:
    """(least, most) that minima and maxima with constants let a value be."""
    if not isinstance(value, Apply) or value.fn not in ("min", "max"):
        return -math.inf, math.inf
    first, second = value.args
    if isinstance(first, Const):
        first, second = second, first
    if not isinstance(second, Const):
        return -math.inf, math.inf
    limit, (low, high) = float(second.value), limits_of(first)
    if value.fn == "min":
        return min(low, limit), min(high, limit)
    return max(low, limit), max(high, limit)


def unrounded(value: Value) -> Value | None:
    """What a value would be but for its last step, rounding to a whole number: it may be limited
    by whole numbers after that, or before. None where it is not rounded."""
    if not isinstance(value, Apply):
        return None
    if value.fn == "round":
        return value.args[0]
    if value.fn not in ("min", "max"):
        return None
    first, second = value.args
    if isinstance(first, Const):
        first, second = second, first
    inner = unrounded(first)
    if inner is None or not isinstance(second, Const) or not float(second.value).is_integer():
        return None
    return fn(value.fn, inner, second)
