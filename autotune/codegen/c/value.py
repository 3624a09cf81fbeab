"""Loads and values of a program as expressions of the C family.

In: IR values. Out: expressions without side effects, so that a branch that is not taken loads
nothing. What cannot be an expression on vectors raises `NotVectorError`, and the statement is
written as a loop over the lanes instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.codegen.c.amount import amount_text
from autotune.codegen.c.dialect import SHORT, float_constant, mask_of, type_name
from autotune.codegen.c.index import CIndexWriter, CLinear, NotVectorError
from autotune.codegen.c.overflow import MODULAR, known_comparison, overflows
from autotune.codegen.expression import Val
from autotune.codegen.llvm.math import MOST_FACTORS, factors_of, is_product
from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.analysis import interval
from autotune.sizes import any_size, surely_at_most, surely_less
from autotune.types import ITEM_BYTES, is_unsigned

MASK = "mask"
"""Element type of a comparison of vectors; the lanes' width goes with it as `mask:i32`."""
_KEEPING_NAN = {"max": "maximum", "min": "minimum"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class CValueWriter(CIndexWriter):
    """Writes values; the statement writers build on it."""

    # -------------------------------------------------------------------------------------- loads

    def element(self, value: ir.Load) -> str:
        return self.load(value).text

    def load(self, value: ir.Load) -> Val:
        """An element, or one per lane."""
        buffer = self.buffers[value.buffer]
        try:
            at = self.flat(buffer, value.indices)
        except NotVectorError:
            return self._gather(value, buffer)
        if at.lane and self.lanes == 1:
            raise NotVectorError
        if self.in_registers(buffer.name):
            cell = self.cell(buffer, at)
            if cell.lanes > 1 or buffer.name not in self.modular_sums:
                return cell
            return Val(f"(({self.helpers.type(buffer.dtype)}){cell.text})", buffer.dtype, 1)
        if not at.lane:
            return self.from_memory(f"{self.names[buffer.name]}[{at.text}]", buffer.dtype)
        if at.lane != 1:
            return self._gather(value, buffer)
        if buffer.dtype == "bool":
            raise NotVectorError
        kind = self.helpers.type(buffer.dtype, self.lanes)
        return Val(f"{kind}_load({self.place(buffer, at)})", buffer.dtype, self.lanes)

    def place(self, buffer: ir.Buffer, at: CLinear) -> str:
        """Pointer to an element."""
        text, name = at.text, self.names[buffer.name]
        return name if text == "0" else f"{name} + {text}"

    def from_memory(self, text: str, dtype: str) -> Val:
        self.helpers.type(dtype)
        return Val(text, dtype, 1)

    def _gather(self, value: ir.Load, buffer: ir.Buffer) -> Val:
        """Lanes that do not lie side by side: one load each."""
        if self.lanes == 1 or self.lanes > 16 or buffer.dtype == "bool":
            raise NotVectorError
        kind, parts = self.helpers.type(buffer.dtype, self.lanes), []
        for lane in range(self.lanes):
            with self.one_lane(lane):
                parts.append(self.load(value).text)
        return Val(self.dialect.literal_vector(kind, parts), buffer.dtype, self.lanes)

    def cell(self, buffer: ir.Buffer, at: CLinear) -> Val:
        """A register variable; a buffer that needs more than variables is noted as a conflict."""
        lanes, name = self.lanes if at.lane else 1, self.names[buffer.name]
        start, made = self._cell_around(buffer.name, at.const, lanes)
        if at.terms or at.lane not in (0, 1) or start + made < at.const + lanes:
            self.conflicts.add(buffer.name)
        elif made > lanes == 1:
            text = self.dialect.lane(f"{name}{start}", at.const - start)
            return Val(text, buffer.dtype, 1)
        elif (start, made) != (at.const, lanes):
            self.conflicts.add(buffer.name)
        self.helpers.type(buffer.dtype, lanes)
        return Val(f"{name}{at.const}", buffer.dtype, lanes)

    def _cell_around(self, name: str, first: int, lanes: int) -> tuple[int, int]:
        """(first element, lanes) of the variable that holds an element; a new one if none does."""
        if self.cells.get((name, first)) == lanes:
            return first, lanes
        own = [(at, made) for (owner, at), made in self.cells.items() if owner == name]
        for at, made in own:
            if at <= first < at + made or first <= at < first + lanes:
                return at, made
        self.cells[name, first] = lanes
        return first, lanes

    def in_registers(self, name: str) -> bool:
        """Whether a buffer is variables rather than an array."""
        return self.buffers[name].scope == "register" and name not in self.arrays

    # ------------------------------------------------------------------------------------- values

    def value(self, value: ir.Value) -> Val:
        """An expression; lanes is 1 where it does not depend on the vector loop."""
        if isinstance(value, ir.Const):
            return Val(self.literal(value.value, value.dtype), value.dtype, 1)
        if isinstance(value, ir.Load):
            return self.load(value)
        if isinstance(value, ir.Apply):
            return self._apply(value)
        if isinstance(value, ir.Select):
            return self._select(value)
        if isinstance(value, ir.Table):
            return Val(float_constant(self.table(value)), "float32", 1)
        at = self.linear(value.index)
        if at.lane:
            raise NotVectorError
        return self.convert(Val(f"({at.text})", "index", 1), value.dtype)

    def literal(self, value: float | int | bool, dtype: str) -> str:
        if dtype.startswith("float"):
            text = float_constant(float(value), dtype)
            return f"({text})" if text.startswith("-") else text
        if dtype == "int64":
            name = self.helpers.type("int64")
            if int(value) == -(2**63):
                return f"(-({name}){2**63 - 1} - 1)"
            return f"(({name}){int(value)})"
        if dtype == "int32" and int(value) == -(2**31):
            return f"(-{2**31 - 1} - 1)"  # 2147483648 is a long, and so its negative
        if dtype in ("int16", "uint16", "uint32", "uint64"):
            sign = "u" if is_unsigned(dtype) else ""
            return f"(({self.helpers.type(dtype)}){int(value)}{sign})"
        return str(int(value)) if value >= 0 else f"({int(value)})"

    def table(self, value: ir.Table) -> float:
        """A table's entry; its indices must be constant here."""
        row, column = self.linear(value.row), self.linear(value.column)
        if row.terms or column.terms or row.lane or column.lane:
            raise BuildError("a table is indexed by a loop that is not unrolled")
        return value.values[row.const][column.const]

    def splat(self, value: Val, lanes: int) -> Val:
        """The value with all lanes."""
        if value.lanes == lanes:
            return value
        if value.lanes != 1 or value.dtype == "bool":
            raise NotVectorError
        kind = self.helpers.type(value.dtype, lanes)
        return Val(self.dialect.splat(kind, value.text), value.dtype, lanes)

    def _apply(self, value: ir.Apply) -> Val:
        args = [self.value(a) for a in value.args]
        if value.fn.startswith("to_"):
            return self.convert(args[0], value.fn[3:])
        last = value.args[-1]
        if value.fn in ("max", "min"):
            return self._extreme(value, args)
        if value.fn in ("div", "mod") and not args[0].dtype.startswith("float"):
            return self._whole_quotient(value.fn, args, last)
        if value.fn == "pow" and isinstance(last, ir.Const) and args[0].dtype == "float32":
            return self._power(args[0], args[1], float(last.value))
        if value.fn == "shift_right" and _is_within(last, 8 * ITEM_BYTES[args[0].dtype]):
            moved = f"({args[0].text} >> {args[1].text})"
            return self._wrapped(moved, args[0], max(a.lanes for a in args))
        if value.fn in ir.COMPARISONS and self.lanes == 1:
            dtypes = (args[0].dtype, *self._converted_from(value.args[0]))
            known = known_comparison(value.fn, dtypes, last)
            if known is not None:
                return Val(str(int(known)), "bool", 1)
        if value.fn in MODULAR and overflows(value, args[0].dtype, self.buffers):
            return self.modular(value.fn, args)
        return self.function(value.fn, args)

    def _converted_from(self, value: ir.Value) -> Iterator[str]:
        """The types that an integer had before, the last one first."""
        while isinstance(value, ir.Apply) and value.fn in ("to_int32", "to_int64"):
            value = value.args[0]
            yield self.value(value).dtype

    def _extreme(self, value: ir.Apply, args: list[Val]) -> Val:
        """Larger or smaller value, NaN where either is. With a literal, which comes second, the
        first one's NaN stays anyway."""
        if isinstance(value.args[0], ir.Const):
            args = args[::-1]
        known = any(isinstance(a, ir.Const) for a in value.args)
        return self.function(value.fn if known else _KEEPING_NAN[value.fn], args)

    def _whole_quotient(self, fn: str, args: list[Val], divisor: ir.Value) -> Val:
        """Quotient or remainder of integers; literals but 0 and -1 are divided by as they are."""
        if fn == "div" and isinstance(divisor, ir.Const) and divisor.value not in (0, -1):
            return self.function(fn, args)
        if max(a.lanes for a in args) > 1:
            raise NotVectorError
        return self._call(fn, *args)

    def _power(self, base: Val, exponent: Val, known: float) -> Val:
        """base ** known: small powers by products and square roots, as the other backends do."""
        if not is_product(known) or factors_of(known) > MOST_FACTORS:
            return self.function("pow", [base, exponent])
        quarters, number = int(abs(known) * 4), base.text
        parts = [number] * (quarters // 4)
        if quarters % 4:
            # Of minus infinity the power is infinite, though it has no root.
            root = self._call("even_root", base).text
            parts = [self._call("fabs", base).text] * (quarters // 4)
            parts += [root] * (quarters % 4 // 2)
            near = Val(root, base.dtype, base.lanes)
            parts += [self._call("sqrt", near).text] * (quarters % 2)
        if known > 0:
            return Val(f"({' * '.join(parts)})", base.dtype, base.lanes)
        # A product below 2**-126 has lost digits that its reciprocal would show.
        scale = [self._call("unscaled", base).text] if known < -1 else []
        out = f"(1.0f / ({' * '.join(scale + parts)}))"
        return Val(f"({' * '.join([out, *scale])})", base.dtype, base.lanes)

    def function(self, fn: str, args: Sequence[Val]) -> Val:
        """A function of FUNCTIONS of values."""
        lanes = max(a.lanes for a in args)
        if fn == "where":
            return self._where(*args)
        if fn in ("and", "or", "not"):
            return self._logic(fn, args)
        if any(a.dtype.startswith(MASK) or (a.dtype == "bool" and lanes > 1) for a in args):
            raise NotVectorError
        if fn in ir.COMPARISONS:
            text = f"({args[0].text} {_COMPARE[fn]} {args[1].text})"
            return Val(text, "bool" if lanes == 1 else self._mask(args[0].dtype), lanes)
        if fn in _INFIX:
            return self._wrapped(f"({args[0].text} {_INFIX[fn]} {args[1].text})", args[0], lanes)
        if fn in ("neg", "bit_not"):
            sign = "-" if fn == "neg" else "~"
            return self._wrapped(f"({sign}{args[0].text})", args[0], lanes)
        real = args[0].dtype.startswith("float")
        if fn in ("floor", "ceil", "round") and not real:
            return args[0]
        if fn in ("rsqrt", "reciprocal"):
            one = self.literal(1.0, args[0].dtype)
            below = self._call("sqrt", args[0]).text if fn == "rsqrt" else args[0].text
            return Val(f"({one} / {below})", args[0].dtype, lanes)
        if fn == "mod" and lanes > 1:
            raise NotVectorError
        if fn == "bits":
            whole = self.helpers.type("int32", lanes)
            return Val(self.helpers.reinterpreted(whole, args[0].text), "int32", lanes)
        return self._call(fn, *(self.splat(a, lanes) for a in args))

    def modular(self, fn: str, args: Sequence[Val]) -> Val:
        """A function of `MODULAR` of signed integers that may overflow, by unsigned ones."""
        lanes, signed = max(a.lanes for a in args), args[0].dtype
        kinds = (self.helpers.type(f"u{signed}", lanes), self.helpers.type(signed, lanes))
        given = (self.splat(a, lanes).text for a in args)
        unsigned = [self.dialect.reinterpret(kinds[0], text) for text in given]
        text = f"-{unsigned[0]}" if fn == "neg" else f" {_INFIX[fn]} ".join(unsigned)
        return Val(self.dialect.reinterpret(kinds[1], text), signed, lanes)

    def _wrapped(self, text: str, like: Val, lanes: int) -> Val:
        """A result of arithmetic: that of single bytes is wider in C."""
        if lanes == 1 and ITEM_BYTES.get(like.dtype, 4) < 4:
            text = f"(({self.helpers.type(like.dtype)}){text})"
        return Val(text, like.dtype, lanes)

    def _call(self, fn: str, *args: Val) -> Val:
        first = args[0]
        kind = self.helpers.type(first.dtype, first.lanes)
        return Val(self.helpers.call(fn, kind, *(a.text for a in args)), first.dtype, first.lanes)

    def _mask(self, dtype: str) -> str:
        return f"{MASK}:{mask_of(SHORT[dtype])}"

    def _where(self, flag: Val, then: Val, other: Val) -> Val:
        lanes = max(flag.lanes, then.lanes, other.lanes)
        then, other = self.splat(then, lanes), self.splat(other, lanes)
        if flag.lanes == 1:
            return Val(f"({flag.text} ? {then.text} : {other.text})", then.dtype, lanes)
        if then.dtype == "bool" or flag.dtype != self._mask(then.dtype):
            raise NotVectorError
        kind = self.helpers.type(then.dtype, lanes)
        text = self.helpers.call("select", kind, flag.text, then.text, other.text)
        return Val(text, then.dtype, lanes)

    def _logic(self, fn: str, args: Sequence[Val]) -> Val:
        lanes = max(a.lanes for a in args)
        if len({(a.dtype, a.lanes) for a in args}) > 1:
            raise NotVectorError
        if fn == "not":
            return Val(f"({'!' if lanes == 1 else '~'}{args[0].text})", args[0].dtype, lanes)
        op = {"and": "&", "or": "|"}[fn] * (2 if lanes == 1 and args[0].dtype == "bool" else 1)
        return Val(f"({args[0].text} {op} {args[1].text})", args[0].dtype, lanes)

    def convert(self, value: Val, dtype: str) -> Val:
        """Another element type."""
        if value.dtype == dtype:
            return value
        if dtype == "bool":
            if value.lanes > 1:
                raise NotVectorError
            return Val(f"({value.text} != 0)", "bool", 1)
        if value.dtype.startswith(MASK):
            raise NotVectorError
        if dtype == "bfloat16":
            value = self.convert(value, "float32")
            kind = self.helpers.type("float32", value.lanes)
            return Val(self.helpers.call("narrow", kind, value.text), dtype, value.lanes)
        if value.dtype == "bfloat16":
            kind = self.helpers.type("bfloat16", value.lanes)
            wide = Val(self.helpers.call("widen", kind, value.text), "float32", value.lanes)
            return self.convert(wide, dtype)
        kind = self.helpers.type(dtype, value.lanes)
        source = type_name(value.dtype, value.lanes)
        if value.dtype.startswith("float") and not dtype.startswith("float"):
            return Val(self.helpers.limited(source, kind, value.text), dtype, value.lanes)
        return Val(self.dialect.convert(source, kind, value.text), dtype, value.lanes)

    # ------------------------------------------------------------------------------------- bounds

    def condition(self, bounds: Sequence[ir.Bound]) -> bool | str:
        """Whether all bounds hold: known now, or an expression. NotVectorError where it differs
        from lane to lane."""
        parts: list[str] = []
        for bound in bounds:
            at = self.linear(bound.index)
            known = not any_size((at.const, bound.lo, bound.hi))
            if not at.terms and known:
                lanes = range(self.lanes if at.lane else 1)
                hits = {bound.lo <= at.const + i * at.lane < bound.hi for i in lanes}
                if len(hits) > 1:
                    raise NotVectorError
                if hits == {False}:
                    return False
                continue
            if at.lane:
                raise NotVectorError
            lo, hi = interval(bound.index, self.ranges)
            name = at.text
            low, high = amount_text(bound.lo), amount_text(bound.hi)
            parts += [] if surely_at_most(bound.lo, lo) else [f"{name} >= {low}"]
            parts += [] if surely_less(hi, bound.hi) else [f"{name} < {high}"]
        return " && ".join(parts) if parts else True

    def _select(self, value: ir.Select) -> Val:
        condition = self.condition(value.bounds)
        if isinstance(condition, bool):
            return self.value(value.then if condition else value.other)
        then, other = self.value(value.then), self.value(value.other)
        lanes = max(then.lanes, other.lanes)
        then, other = self.splat(then, lanes), self.splat(other, lanes)
        return Val(f"({condition} ? {then.text} : {other.text})", then.dtype, lanes)


def _is_within(count: ir.Value, bits: int) -> bool:
    """Whether a count is less than the bits of what is moved, whatever it is of."""
    known = count
    if isinstance(count, ir.Apply) and count.fn == "bit_and":
        known = count.args[-1]
    return isinstance(known, ir.Const) and 0 <= known.value < bits
