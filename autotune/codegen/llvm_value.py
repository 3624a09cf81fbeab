"""Indices, addresses and values of a program as LLVM IR. In: IR values. Out: names of LLVM values.

`env` says what a loop variable is now: an int (unrolled), an LLVM name with its loop depth, or the
lane of the vector loop being written. A value with one lane is uniform and is splat where a vector
is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.codegen.llvm_math import float_text, power, unary
from autotune.codegen.llvm_text import FunctionText, suffix_text, type_text
from autotune.errors import BuildError
from autotune.program.analysis import recombine
from autotune.program.ir import (
    COMPARISONS,
    Apply,
    Bound,
    Buffer,
    Clamp,
    Const,
    FloorDiv,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    Mod,
    Select,
    Table,
    Value,
)
from autotune.types import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable that is an LLVM value known from a loop depth on."""

    name: str
    depth: int


@dataclass(frozen=True, slots=True)
class Lane:
    """The vector loop's variable."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Linear:
    """const + sum of coefficient * LLVM value + lane coefficient * lane."""

    terms: tuple[tuple[Var, int], ...]
    const: int
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Val:
    """An LLVM value."""

    text: str
    dtype: str
    lanes: int


class ValueWriter:
    """Writes values into a function; the statement writer builds on it."""

    def __init__(self, text: FunctionText) -> None:
        self.text = text
        self.env: dict[str, int | Var | Lane] = {}
        self.buffers: dict[str, Buffer] = {}
        self.pointers: dict[str, str] = {}
        self.cells: dict[tuple[str, int], tuple[str, int]] = {}
        self.lanes = 1
        self.mask: str | None = None
        self.written: set[str] = set()
        self._flat: dict[tuple[str, tuple[Index, ...]], Index] = {}

    # ------------------------------------------------------------------------------------- indices

    def linear(self, value: Index) -> Linear:
        """An index in the current environment. BuildError if an atom depends on the lane."""
        terms: dict[Var, int] = {}
        const, lane = value.const, 0
        for atom, c in value.terms:
            now = self.env[atom] if isinstance(atom, str) else self._atom(atom)
            if isinstance(now, int):
                const += c * now
            elif isinstance(now, Lane):
                lane += c
            else:
                terms[now] = terms.get(now, 0) + c
        ordered = tuple(
            sorted(terms.items(), key=lambda t: (t[0].depth < 0, t[0].depth, t[0].name))
        )
        return Linear(tuple(t for t in ordered if t[1]), const, lane)

    def _atom(self, atom: FloorDiv | Mod | Clamp | LoadIndex) -> int | Var:
        if isinstance(atom, LoadIndex):
            return self._loaded(atom)
        inner = self.linear(atom.index)
        if inner.lane:
            raise BuildError("an index divides or clamps the vector lane")
        if not inner.terms:
            return _fold(atom, inner.const)
        name, depth = self.scalar(inner)
        if isinstance(atom, Clamp):
            low = self._hoisted(depth, f"call i64 @llvm.smax.i64(i64 {name}, i64 {atom.lo})")
            high = f"call i64 @llvm.smin.i64(i64 {low}, i64 {atom.hi})"
            for kind in ("smax", "smin"):
                self.text.declare(f"llvm.{kind}.i64", f"declare i64 @llvm.{kind}.i64(i64, i64)")
            return Var(self._hoisted(depth, high), depth)
        # Indices are never negative where they are divided: programs divide sums of loops.
        op = "udiv" if isinstance(atom, FloorDiv) else "urem"
        return Var(self._hoisted(depth, f"{op} i64 {name}, {atom.divisor}"), depth)

    def _hoisted(self, depth: int, text: str) -> str:
        return self.text.hoist(depth, text, text)

    def _loaded(self, atom: LoadIndex) -> Var:
        saved, self.lanes = self.lanes, 1
        value = self.convert(self.load(Load(atom.buffer, atom.indices)), "int64")
        self.lanes = saved
        negative = self._pure_here(f"icmp slt i64 {value.text}, 0")
        wrapped = self._pure_here(f"add i64 {value.text}, {atom.extent}")
        i = self._pure_here(f"select i1 {negative}, i64 {wrapped}, i64 {value.text}")
        for kind, limit in (("smax", 0), ("smin", atom.extent - 1)):
            self.text.declare(f"llvm.{kind}.i64", f"declare i64 @llvm.{kind}.i64(i64, i64)")
            i = self._pure_here(f"call i64 @llvm.{kind}.i64(i64 {i}, i64 {limit})")
        return Var(i, -1)

    def _pure_here(self, text: str) -> str:
        return self.text.once(text, text)

    def scalar(self, value: Linear) -> tuple[str, int]:
        """(i64 value without the lane's part, loop depth from which it is known)."""
        if not value.terms:
            return str(value.const), 0
        total, depth = "", 0
        for var, c in value.terms:
            depth = -1 if var.depth < 0 or depth < 0 else max(depth, var.depth)
            part = self._pure(depth, f"mul i64 {var.name}, {c}") if c != 1 else var.name
            total = self._pure(depth, f"add i64 {total}, {part}") if total else part
        if value.const:
            total = self._pure(depth, f"add i64 {total}, {value.const}")
        return total, depth

    def _pure(self, depth: int, text: str) -> str:
        """A pure instruction, at the loop depth of its operands (-1: known only here)."""
        return self.text.emit(text) if depth < 0 else self.text.hoist(depth, text, text)

    def flat(self, buffer: Buffer, indices: tuple[Index, ...]) -> Index:
        """Offset in elements from the buffer's first element."""
        key = (buffer.name, indices)
        if key not in self._flat:
            total = Index()
            for i, stride in zip(indices, buffer.strides, strict=True):
                total = total + i * stride
            self._flat[key] = recombine(total)
        return self._flat[key]

    def address(self, buffer: Buffer, offset: Linear) -> str:
        """Pointer to an element; the lane's part is left out."""
        base, depth, key = self.pointers[buffer.name], 0, buffer.name
        item = type_text(buffer.dtype, 1, memory=True)
        for var, c in offset.terms:
            depth = -1 if var.depth < 0 or depth < 0 else max(depth, var.depth)
            scaled = self._pure(depth, f"mul i64 {var.name}, {c}") if c != 1 else var.name
            base = self._pure(depth, f"getelementptr {item}, ptr {base}, i64 {scaled}")
            key = base
        if offset.const:
            text = f"getelementptr {item}, ptr {base}, i64 {offset.const}"
            base = self.text.once((key, text), text)
        return base

    # -------------------------------------------------------------------------------------- values

    def value(self, value: Value) -> Val:
        """Write a value; lanes is 1 where it does not depend on the vector loop."""
        if isinstance(value, Const):
            return Val(_literal(value.value, value.dtype), value.dtype, 1)
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

    def splat(self, value: Val, lanes: int) -> Val:
        """The value with all lanes."""
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise BuildError(f"a value of {value.lanes} lanes where {lanes} are needed")
        scalar, vector = type_text(value.dtype, 1), type_text(value.dtype, lanes)
        if not value.text.startswith("%"):
            return Val(f"splat ({scalar} {value.text})", value.dtype, lanes)
        one = f"insertelement {vector} poison, {scalar} {value.text}, i64 0"
        one = self.text.once(one, one)
        zeros = f"<{lanes} x i32> zeroinitializer"
        full = f"shufflevector {vector} {one}, {vector} poison, {zeros}"
        return Val(self.text.once(full, full), value.dtype, lanes)

    def load(self, value: Load) -> Val:
        """An element, or one per lane."""
        buffer = self.buffers[value.buffer]
        if buffer.scope == "register":
            cell, lanes = self.cell(buffer, value.indices)
            kind = type_text(buffer.dtype, lanes)
            return Val(self.text.emit(f"load {kind}, ptr {cell}"), buffer.dtype, lanes)
        if self.lanes > 1 and self._irregular(value.indices):
            return self._gather(value, buffer)
        offset = self.linear(self.flat(buffer, value.indices))
        if self.lanes == 1 or offset.lane == 0:
            return self._element(buffer, offset)
        if offset.lane != 1:
            return self._gather(value, buffer)
        return self._vector(buffer, offset)

    def _irregular(self, indices: Sequence[Index]) -> bool:
        """Whether an atom, not just a coefficient, depends on the lane."""
        lanes = {v for v, now in self.env.items() if isinstance(now, Lane)}
        return any(
            not isinstance(a, str) and _atom_vars(a) & lanes for i in indices for a, _ in i.terms
        )

    def _element(self, buffer: Buffer, offset: Linear) -> Val:
        kind = type_text(buffer.dtype, 1, memory=True)
        pointer = self.address(buffer, offset)
        text = f"load {kind}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}"
        return self._from_memory(self._read(buffer, text), buffer.dtype, 1)

    def _read(self, buffer: Buffer, text: str) -> str:
        """A load; written once per scope where nothing stores to the buffer."""
        if buffer.name in self.written:
            return self.text.emit(text)
        return self.text.once(text, text)

    def _vector(self, buffer: Buffer, offset: Linear) -> Val:
        kind = type_text(buffer.dtype, self.lanes, memory=True)
        pointer, align = self.address(buffer, offset), ITEM_BYTES[buffer.dtype]
        if self.mask is None:
            text = f"load {kind}, ptr {pointer}, align {align}"
        else:
            name = f"llvm.masked.load.{_memory_suffix(buffer.dtype, self.lanes)}.p0"
            mask = f"<{self.lanes} x i1>"
            self.text.declare(name, f"declare {kind} @{name}(ptr, i32, {mask}, {kind})")
            text = (
                f"call {kind} @{name}(ptr {pointer}, i32 {align}, {mask} {self.mask}, "
                f"{kind} zeroinitializer)"
            )
        return self._from_memory(self._read(buffer, text), buffer.dtype, self.lanes)

    def _from_memory(self, name: str, dtype: str, lanes: int) -> Val:
        if dtype == "bool":
            kind = type_text("bool", lanes, memory=True)
            zero = "0" if lanes == 1 else "zeroinitializer"
            text = f"icmp ne {kind} {name}, {zero}"
            name = self.text.once(text, text)
        return Val(name, dtype, lanes)

    def _gather(self, value: Load, buffer: Buffer) -> Val:
        """Lanes that do not lie side by side: one load each."""
        lane_vars = [v for v, now in self.env.items() if isinstance(now, Lane)]
        lanes, mask = self.lanes, self.mask
        vector = type_text(buffer.dtype, lanes)
        out = "poison" if mask is None else "zeroinitializer"
        for lane in range(lanes):
            self.lanes, self.mask = 1, None
            self.env.update(dict.fromkeys(lane_vars, lane))
            if mask is None:
                element = self._element(buffer, self.linear(self.flat(buffer, value.indices)))
                given = f"{type_text(buffer.dtype, 1)} {element.text}"
                out = self.text.emit(f"insertelement {vector} {out}, {given}, i64 {lane}")
            else:
                out = self._masked_lane(value, buffer, out, mask, lane, lanes)
        self.lanes, self.mask = lanes, mask
        self.env.update(dict.fromkeys(lane_vars, Lane(lanes)))
        return Val(out, buffer.dtype, lanes)

    def _masked_lane(
        self, value: Load, buffer: Buffer, out: str, mask: str, lane: int, lanes: int
    ) -> str:
        """Insert a lane where its mask bit is set: a branch, so that nothing outside is read."""
        vector = type_text(buffer.dtype, lanes)
        bit = self.text.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")
        before = self.text.block
        with self.text.when(bit):
            element = self._element(buffer, self.linear(self.flat(buffer, value.indices)))
            given = f"{type_text(buffer.dtype, 1)} {element.text}"
            new = self.text.emit(f"insertelement {vector} {out}, {given}, i64 {lane}")
            inside = self.text.block
        return self.text.emit(f"phi {vector} [ {out}, %{before} ], [ {new}, %{inside} ]")

    def cell(self, buffer: Buffer, indices: tuple[Index, ...]) -> tuple[str, int]:
        """(pointer, lanes) of a register cell; the index must be constant, lanes aside."""
        offset = self.linear(self.flat(buffer, indices))
        if offset.terms or offset.lane not in (0, 1):
            raise BuildError(f"register buffer {buffer.name} is indexed by a loop not unrolled")
        lanes = self.lanes if offset.lane else 1
        key = (buffer.name, offset.const)
        if key not in self.cells:
            self.cells[key] = (self.text.alloca(type_text(buffer.dtype, lanes)), lanes)
        cell, made = self.cells[key]
        if made != lanes:
            raise BuildError(
                f"register buffer {buffer.name} is used with {made} and {lanes} lanes"
            )
        return cell, lanes

    # ------------------------------------------------------------------------------------ functions

    def _apply(self, value: Apply) -> Val:
        if value.fn.startswith("to_"):
            return self.convert(self.value(value.args[0]), value.fn[3:])
        args = [self.value(a) for a in value.args]
        lanes = max(a.lanes for a in args)
        args = [self.splat(a, lanes) for a in args]
        if value.fn in COMPARISONS:
            return self._compare(value.fn, args[0], args[1])
        if value.fn == "where":
            kind = type_text(args[1].dtype, lanes)
            mask = type_text("bool", lanes)
            return Val(
                self.text.emit(
                    f"select {mask} {args[0].text}, {kind} {args[1].text}, {kind} {args[2].text}"
                ),
                args[1].dtype,
                lanes,
            )
        dtype = args[0].dtype
        if value.fn == "pow" and dtype.startswith("float"):
            last = value.args[1]
            exponent = float(last.value) if isinstance(last, Const) else None
            texts = (args[0].text, exponent, args[1].text)
            return Val(power(self.text, *texts, dtype, lanes), dtype, lanes)
        if len(args) == 1:
            return self._unary(value.fn, args[0])
        return self.binary(value.fn, args[0], args[1])

    def _unary(self, fn: str, arg: Val) -> Val:
        if arg.dtype.startswith("float"):
            return Val(unary(self.text, fn, arg.text, arg.dtype, arg.lanes), arg.dtype, arg.lanes)
        kind = type_text(arg.dtype, arg.lanes)
        if fn == "not":
            ones = self.splat(Val("true", "bool", 1), arg.lanes).text
            return Val(self.text.emit(f"xor {kind} {arg.text}, {ones}"), "bool", arg.lanes)
        zero = "0" if arg.lanes == 1 else "zeroinitializer"
        if fn == "neg":
            return Val(self.text.emit(f"sub {kind} {zero}, {arg.text}"), arg.dtype, arg.lanes)
        if fn in ("floor", "ceil", "round"):
            return arg
        if fn in ("abs", "sign"):
            negative = self.text.emit(f"icmp slt {kind} {arg.text}, {zero}")
            mask = type_text("bool", arg.lanes)
            if fn == "abs":
                other = self.text.emit(f"sub {kind} {zero}, {arg.text}")
                text = f"select {mask} {negative}, {kind} {other}, {kind} {arg.text}"
                return Val(self.text.emit(text), arg.dtype, arg.lanes)
            positive = self.text.emit(f"icmp sgt {kind} {arg.text}, {zero}")
            up = self.text.emit(f"zext {mask} {positive} to {kind}")
            down = self.text.emit(f"zext {mask} {negative} to {kind}")
            return Val(self.text.emit(f"sub {kind} {up}, {down}"), arg.dtype, arg.lanes)
        raise BuildError(f"no {arg.dtype} code for {fn}")

    def binary(self, fn: str, a: Val, b: Val) -> Val:
        """A function of two values of one type and lane count."""
        kind, real = type_text(a.dtype, a.lanes), a.dtype.startswith("float")
        if fn in ("max", "min"):
            op = {"max": ("ugt", "sgt"), "min": ("ult", "slt")}[fn][0 if real else 1]
            compare = f"{'fcmp' if real else 'icmp'} {op} {kind} {a.text}, {b.text}"
            flag, mask = self.text.emit(compare), type_text("bool", a.lanes)
            text = f"select {mask} {flag}, {kind} {a.text}, {kind} {b.text}"
            return Val(self.text.emit(text), a.dtype, a.lanes)
        if fn == "mod":
            return self._mod(a, b, kind, real)
        names = _FLOAT_OPS if real else _INT_OPS
        if fn not in names:
            raise BuildError(f"no {a.dtype} code for {fn}")
        return Val(self.text.emit(f"{names[fn]} {kind} {a.text}, {b.text}"), a.dtype, a.lanes)

    def _mod(self, a: Val, b: Val, kind: str, real: bool) -> Val:
        """Remainder with the divisor's sign, as numpy.mod."""
        op = ("frem", "fadd", "fcmp une", "fcmp olt") if real else _INT_MOD
        rest = self.text.emit(f"{op[0]} {kind} {a.text}, {b.text}")
        zero = self.splat(Val(_literal(0, a.dtype), a.dtype, 1), a.lanes).text
        fixed = self.text.emit(f"{op[1]} {kind} {rest}, {b.text}")
        nonzero = self.text.emit(f"{op[2]} {kind} {rest}, {zero}")
        signs = [self.text.emit(f"{op[3]} {kind} {v}, {zero}") for v in (rest, b.text)]
        mask = type_text("bool", a.lanes)
        differ = self.text.emit(f"xor {mask} {signs[0]}, {signs[1]}")
        both = self.text.emit(f"and {mask} {differ}, {nonzero}")
        text = f"select {mask} {both}, {kind} {fixed}, {kind} {rest}"
        return Val(self.text.emit(text), a.dtype, a.lanes)

    def _compare(self, fn: str, a: Val, b: Val) -> Val:
        real = a.dtype.startswith("float")
        kind = type_text(a.dtype, a.lanes)
        if real:
            op = "fcmp " + ("une" if fn == "ne" else "o" + fn)
        else:
            op = "icmp " + (fn if fn in ("eq", "ne") else "s" + fn)
        return Val(self.text.emit(f"{op} {kind} {a.text}, {b.text}"), "bool", a.lanes)

    def convert(self, value: Val, dtype: str) -> Val:
        """Change the element type."""
        if value.dtype == dtype:
            return value
        source, target = (type_text(d, value.lanes) for d in (value.dtype, dtype))
        if dtype == "bool":
            zero = self.splat(Val(_literal(0, value.dtype), value.dtype, 1), value.lanes).text
            op = "fcmp une" if value.dtype.startswith("float") else "icmp ne"
            return Val(self.text.emit(f"{op} {source} {value.text}, {zero}"), dtype, value.lanes)
        op = _cast(value.dtype, dtype)
        if not op:
            return Val(value.text, dtype, value.lanes)
        name = self.text.emit(f"{op} {source} {value.text} to {target}")
        return Val(name, dtype, value.lanes)

    # ------------------------------------------------------------------------- bounds and selection

    def _index_value(self, value: IndexValue) -> Val:
        if self.lanes > 1 and self._irregular((value.index,)):
            raise BuildError("an index value divides the vector lane")
        linear = self.linear(value.index)
        base = Val(self.scalar(linear)[0], "int64", 1)
        if linear.lane:
            steps = ", ".join(f"i64 {i * linear.lane}" for i in range(self.lanes))
            full = self.splat(base, self.lanes)
            kind = type_text("int64", self.lanes)
            base = Val(self.text.emit(f"add {kind} {full.text}, <{steps}>"), "int64", self.lanes)
        return self.convert(base, value.dtype)

    def condition(self, bounds: Sequence[Bound]) -> bool | tuple[str, int]:
        """Whether all bounds hold: known now, or (i1 value or vector of them, lanes)."""
        uniform: list[str] = []
        masks: list[str] = []
        for bound in bounds:
            linear = self.linear(bound.index)
            if not linear.terms:
                lanes = range(self.lanes) if linear.lane else range(1)
                hits = [bound.lo <= linear.const + i * linear.lane < bound.hi for i in lanes]
                if not any(hits):
                    return False
                if not all(hits):
                    bits = ", ".join(f"i1 {'true' if h else 'false'}" for h in hits)
                    masks.append(f"<{bits}>")
            elif linear.lane:
                masks += self._lane_compare(linear, bound)
            else:
                uniform.append(self._uniform_compare(linear, bound))
        if masks:
            return self._joined(masks, uniform), self.lanes
        if uniform:
            return self._and(uniform, "i1"), 1
        return True

    def _uniform_compare(self, linear: Linear, bound: Bound) -> str:
        # One unsigned comparison covers both ends.
        shifted = Linear(linear.terms, linear.const - bound.lo)
        name, depth = self.scalar(shifted)
        return self._pure(depth, f"icmp ult i64 {name}, {bound.hi - bound.lo}")

    def _lane_compare(self, linear: Linear, bound: Bound) -> list[str]:
        base = self.splat(Val(self.scalar(linear)[0], "int64", 1), self.lanes).text
        kind = type_text("int64", self.lanes)
        steps = ", ".join(f"i64 {i * linear.lane - bound.lo}" for i in range(self.lanes))
        value = self.text.emit(f"add {kind} {base}, <{steps}>")
        limit = f"splat (i64 {bound.hi - bound.lo})"
        return [self.text.emit(f"icmp ult {kind} {value}, {limit}")]

    def _joined(self, masks: list[str], uniform: list[str]) -> str:
        kind = type_text("bool", self.lanes)
        out = self._and(masks, kind)
        for flag in uniform:
            full = self.splat(Val(flag, "bool", 1), self.lanes).text
            out = self.text.emit(f"and {kind} {out}, {full}")
        return out

    def _and(self, flags: list[str], kind: str) -> str:
        out = flags[0]
        for flag in flags[1:]:
            out = self.text.emit(f"and {kind} {out}, {flag}")
        return out

    def under(self, mask: str) -> str:
        """A mask narrowed by the one in force."""
        if self.mask is None:
            return mask
        return self.text.emit(f"and {type_text('bool', self.lanes)} {self.mask}, {mask}")

    def _select(self, value: Select) -> Val:
        if self.lanes > 1 and self._irregular(tuple(b.index for b in value.bounds)):
            raise BuildError("a selection divides the vector lane")
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
        text.line(f"br i1 {flag}, label %{first}, label %{second}")
        arms: list[tuple[Val, str]] = []
        for label, arm in ((first, value.then), (second, value.other)):
            text.start(label)
            with text.region():
                arms.append((self.splat(self.value(arm), lanes), text.block))
            text.line(f"br label %{done}")
        text.start(done)
        dtype = arms[0][0].dtype
        pairs = ", ".join(f"[ {v.text}, %{block} ]" for v, block in arms)
        return Val(text.emit(f"phi {type_text(dtype, lanes)} {pairs}"), dtype, lanes)


_FLOAT_OPS = {
    "add": "fadd nsz contract", "sub": "fsub nsz contract", "mul": "fmul nsz contract",
    "div": "fdiv",
}  # fmt: skip
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "and": "and", "or": "or"}
_INT_MOD = ("srem", "add", "icmp ne", "icmp slt")


def _memory_suffix(dtype: str, lanes: int) -> str:
    return f"v{lanes}i8" if dtype == "bool" else suffix_text(dtype, lanes)


def _cast(source: str, target: str) -> str:
    """LLVM's conversion instruction; empty where the types are the same."""
    if source.startswith("float") and target.startswith("float"):
        return "fpext" if target == "float64" else "fptrunc"
    if source.startswith("float"):
        return "fptoui" if target == "uint8" else "fptosi"
    unsigned = source in ("bool", "uint8")
    if target.startswith("float"):
        return "uitofp" if unsigned else "sitofp"
    before, after = (1 if d == "bool" else ITEM_BYTES[d] * 8 for d in (source, target))
    if before == after:
        return ""
    if before > after:
        return "trunc"
    return "zext" if unsigned else "sext"


def _literal(value: float | int | bool, dtype: str) -> str:
    if dtype.startswith("float"):
        return float_text(float(value), dtype)
    if dtype == "bool":
        return "true" if value else "false"
    return str(int(value))


def _fold(atom: FloorDiv | Mod | Clamp, value: int) -> int:
    if isinstance(atom, FloorDiv):
        return value // atom.divisor
    if isinstance(atom, Mod):
        return value % atom.divisor
    return min(max(value, atom.lo), atom.hi)


def _atom_vars(atom: FloorDiv | Mod | Clamp | LoadIndex | str) -> frozenset[str]:
    if isinstance(atom, str):
        return frozenset((atom,))
    if isinstance(atom, LoadIndex):
        return frozenset[str]().union(*(i.vars() for i in atom.indices))
    return atom.index.vars()


__all__ = ["Lane", "Linear", "Val", "ValueWriter", "Var"]
