"""Element functions on LLVM values: splats, arithmetic, comparisons, conversions.

In: values by name, element type and lane count. Out: the result, written into a function. Nothing
here knows of loops, indices or memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from autotune.codegen.expression import Val
from autotune.codegen.formulas import FORMULAS
from autotune.codegen.formulas_double import DOUBLE
from autotune.codegen.llvm.arithmetic import float_text
from autotune.codegen.llvm.math import MathWriter, unary
from autotune.codegen.llvm.text import FunctionText, type_text
from autotune.errors import BuildError
from autotune.program.ir import COMPARISONS
from autotune.types import ITEM_BYTES, is_unsigned


class ElementWriter:
    """Writes functions of values into a function; the lowest layer of a kernel's writer."""

    math: type[MathWriter] = MathWriter

    def __init__(self, text: FunctionText) -> None:
        self.text = text
        self.bfloat16 = False
        """Whether the target has instructions for bfloat16."""
        self.rounds_bfloat16 = False
        """Whether its instruction that rounds to bfloat16 may be used."""

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

    def function(self, fn: str, args: Sequence[Val]) -> Val:
        """A function of FUNCTIONS applied to values; those of one lane are splat."""
        if fn.startswith("to_"):
            return self.convert(args[0], fn[3:])
        lanes = max(a.lanes for a in args)
        args = [self.splat(a, lanes) for a in args]
        if fn in COMPARISONS:
            return self._compare(fn, args[0], args[1])
        if fn == "where":
            flag, then, other = args
            return self.choose(flag.text, then, other)
        if len(args) == 1:
            return self._unary(fn, args[0])
        return self.binary(fn, args[0], args[1])

    def constant_power(self, base: Val, exponent: Val, known: float) -> Val:
        """base ** exponent where the exponent's value is known."""
        exponent = self.splat(exponent, base.lanes)
        writer = self.math(self.text, base.lanes, base.dtype)
        return Val(writer.power(base.text, exponent.text, known), base.dtype, base.lanes)

    def choose(self, flag: str, then: Val, other: Val) -> Val:
        """`then` where the flag (one per lane) is set, else `other`."""
        kind, mask = type_text(then.dtype, then.lanes), type_text("bool", then.lanes)
        text = f"select {mask} {flag}, {kind} {then.text}, {kind} {other.text}"
        return Val(self.text.emit(text), then.dtype, then.lanes)

    def _unary(self, fn: str, arg: Val) -> Val:
        if fn == "bits":
            whole, real = (type_text(d, arg.lanes) for d in ("int32", "float32"))
            return Val(self.text.emit(f"bitcast {real} {arg.text} to {whole}"), "int32", arg.lanes)
        if arg.dtype.startswith("float"):
            writer = self.math(self.text, arg.lanes, arg.dtype)
            return Val(unary(writer, fn, arg.text), arg.dtype, arg.lanes)
        kind = type_text(arg.dtype, arg.lanes)
        if fn == "not":
            ones = self.splat(Val("true", "bool", 1), arg.lanes).text
            return Val(self.text.emit(f"xor {kind} {arg.text}, {ones}"), "bool", arg.lanes)
        zero = "0" if arg.lanes == 1 else "zeroinitializer"
        if fn == "bit_not":
            ones = self._whole(-1, arg).text
            return Val(self.text.emit(f"xor {kind} {arg.text}, {ones}"), arg.dtype, arg.lanes)
        if fn == "neg":
            return Val(self.text.emit(f"sub {kind} {zero}, {arg.text}"), arg.dtype, arg.lanes)
        if fn in ("floor", "ceil", "round") or (fn == "abs" and is_unsigned(arg.dtype)):
            return arg
        if fn in ("abs", "sign"):
            less, more = ("ult", "ugt") if is_unsigned(arg.dtype) else ("slt", "sgt")
            negative = self.text.emit(f"icmp {less} {kind} {arg.text}, {zero}")
            mask = type_text("bool", arg.lanes)
            if fn == "abs":
                other = self.text.emit(f"sub {kind} {zero}, {arg.text}")
                text = f"select {mask} {negative}, {kind} {other}, {kind} {arg.text}"
                return Val(self.text.emit(text), arg.dtype, arg.lanes)
            positive = self.text.emit(f"icmp {more} {kind} {arg.text}, {zero}")
            up = self.text.emit(f"zext {mask} {positive} to {kind}")
            down = self.text.emit(f"zext {mask} {negative} to {kind}")
            return Val(self.text.emit(f"sub {kind} {up}, {down}"), arg.dtype, arg.lanes)
        raise BuildError(f"no {arg.dtype} code for {fn}")

    def binary(self, fn: str, a: Val, b: Val) -> Val:
        """A function of two values of one type and lane count."""
        kind, real = type_text(a.dtype, a.lanes), a.dtype.startswith("float")
        if fn in _EXTREMES:
            return self._extreme_of_two(fn, a, b)
        if fn in ("div", "mod") and not real:
            return self._whole_quotient(fn, a, b)
        if fn == "mod":
            return self._mod(a, b, kind, real)
        if fn in ("pow", "swish") and real:
            writer = self.math(self.text, a.lanes, a.dtype)
            if fn == "pow":
                return Val(writer.pow(a.text, b.text), a.dtype, a.lanes)
            known = FORMULAS if a.dtype == "float32" else DOUBLE
            return Val(known[fn](writer, a.text, b.text), a.dtype, a.lanes)
        if fn in _SHIFTS:
            return self._shifted(fn, a, b)
        names = _FLOAT_OPS if real else _INT_OPS
        if fn not in names:
            raise BuildError(f"no {a.dtype} code for {fn}")
        return Val(self.text.emit(f"{names[fn]} {kind} {a.text}, {b.text}"), a.dtype, a.lanes)

    def _shifted(self, fn: str, a: Val, count: Val) -> Val:
        """Bits moved; by their number or more, or by less than none: only the sign is left of
        them, and nothing when they go up."""
        kind, bits = type_text(a.dtype, a.lanes), 8 * ITEM_BYTES[a.dtype]
        op = "shl" if fn == "shift_left" else "lshr" if is_unsigned(a.dtype) else "ashr"
        limit = self._whole(bits, a).text
        inside = self.text.emit(f"icmp ult {kind} {count.text}, {limit}")
        if op == "ashr":
            count = self.choose(inside, count, self._whole(bits - 1, a))
        moved = Val(self.text.emit(f"{op} {kind} {a.text}, {count.text}"), a.dtype, a.lanes)
        return moved if op == "ashr" else self.choose(inside, moved, self._whole(0, a))

    def _extreme_of_two(self, fn: str, a: Val, b: Val) -> Val:
        """Larger or smaller value, NaN where either is (not so for `peak`)."""
        real = a.dtype.startswith("float")
        # With a literal, which is no NaN, it is one machine instruction: the first argument's NaN
        # stays, so the literal comes second.
        a, b = (a, b) if a.text.startswith("%") else (b, a)
        if real and fn != "peak" and b.text.startswith("%"):
            writer = self.math(self.text, a.lanes, a.dtype)
            return Val(writer.extreme(fn, a.text, b.text), a.dtype, a.lanes)
        kind = type_text(a.dtype, a.lanes)
        op = _EXTREMES[fn][0 if real else 1 + (is_unsigned(a.dtype))]
        return self.choose(self.text.emit(f"{op} {kind} {a.text}, {b.text}"), b, a)

    def _whole_quotient(self, fn: str, a: Val, b: Val) -> Val:
        """Quotient or remainder of integers: 0 of what is divided by zero, and by -1 the negative,
        which of the least integer is itself. Machines end the program at both."""
        if _divides_safely(b.text):
            return self._divided(fn, a, b)
        kind, signed = type_text(a.dtype, a.lanes), not is_unsigned(a.dtype)
        zero, one, minus = (self._whole(n, a) for n in (0, 1, -1 if signed else 0))
        nothing = self.text.emit(f"icmp eq {kind} {b.text}, {zero.text}")
        turned = self.text.emit(f"icmp eq {kind} {b.text}, {minus.text}")
        divisor = self.choose(turned, one, self.choose(nothing, one, b))
        out = self._divided(fn, a, divisor)
        if fn == "mod":  # by 1: nothing
            return out
        negative = Val(self.text.emit(f"sub {kind} {zero.text}, {a.text}"), a.dtype, a.lanes)
        out = self.choose(turned, negative, out) if signed else out
        return self.choose(nothing, zero, out)

    def _divided(self, fn: str, a: Val, b: Val) -> Val:
        """Quotient or remainder of integers, by none of 0 and -1."""
        kind = type_text(a.dtype, a.lanes)
        if fn == "mod" and not is_unsigned(a.dtype):
            return self._mod(a, b, kind, False)
        name = {"div": "div", "mod": "rem"}[fn]
        op = ("u" if is_unsigned(a.dtype) else "s") + name
        return Val(self.text.emit(f"{op} {kind} {a.text}, {b.text}"), a.dtype, a.lanes)

    def _whole(self, number: int, like: Val) -> Val:
        """An integer of a value's type, in all of its lanes."""
        return self.splat(Val(literal(number, like.dtype), like.dtype, 1), like.lanes)

    def _mod(self, a: Val, b: Val, kind: str, real: bool) -> Val:
        """Remainder with the divisor's sign, as numpy.mod."""
        op = ("frem", "fadd", "fcmp une", "fcmp olt") if real else _INT_MOD
        if real:
            rest = self.math(self.text, a.lanes, a.dtype).remainder(a.text, b.text)
        else:
            rest = self.text.emit(f"{op[0]} {kind} {a.text}, {b.text}")
        zero = self.splat(Val(literal(0, a.dtype), a.dtype, 1), a.lanes).text
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
            sign = "u" if is_unsigned(a.dtype) else "s"
            op = "icmp " + (fn if fn in ("eq", "ne") else sign + fn)
        return Val(self.text.emit(f"{op} {kind} {a.text}, {b.text}"), "bool", a.lanes)

    def convert(self, value: Val, dtype: str) -> Val:
        """Change the element type."""
        if value.dtype == dtype:
            return value
        source, target = (type_text(d, value.lanes) for d in (value.dtype, dtype))
        if dtype == "bool":
            zero = self.splat(Val(literal(0, value.dtype), value.dtype, 1), value.lanes).text
            op = "fcmp une" if value.dtype.startswith("float") else "icmp ne"
            return Val(self.text.emit(f"{op} {source} {value.text}, {zero}"), dtype, value.lanes)
        if dtype == "bfloat16":
            return self._rounded(self.convert(value, "float32"))
        if value.dtype == "bfloat16":
            return self.convert(self._widened(value), dtype)
        if dtype == "float16":
            value = self.convert(value, "float32")
            real, half = type_text("float32", value.lanes), _halves(value.lanes)
            short = self.text.emit(f"fptrunc {real} {value.text} to {half}")
            return Val(self.text.emit(f"bitcast {half} {short} to {target}"), dtype, value.lanes)
        if value.dtype == "float16":
            real, half = type_text("float32", value.lanes), _halves(value.lanes)
            short = self.text.emit(f"bitcast {source} {value.text} to {half}")
            wide = self.text.emit(f"fpext {half} {short} to {real}")
            return self.convert(Val(wide, "float32", value.lanes), dtype)
        if value.dtype.startswith("float") and not dtype.startswith("float"):
            return self._limited(value, dtype)
        op = _cast(value.dtype, dtype)
        if not op:
            return Val(value.text, dtype, value.lanes)
        name = self.text.emit(f"{op} {source} {value.text} to {target}")
        return Val(name, dtype, value.lanes)

    def _limited(self, value: Val, dtype: str) -> Val:
        """A float cut toward zero and limited to an integer type; NaN is 0. By hand: of LLVM's
        conversion that does the same, x86 computes a lane at a time."""
        lanes, limits = value.lanes, np.iinfo(dtype)
        writer = self.math(self.text, lanes, value.dtype)
        least, most = float(limits.min), float(limits.max)
        above = self.text.emit(f"fcmp ogt {writer.type} {value.text}, {writer.const(least)}")
        x = writer.choose(above, value.text, writer.const(least))  # NaN is the least here
        exact = limits.bits < _SIGNIFICANT_BITS[value.dtype]
        if exact:
            x = writer.select_min(x, writer.const(most))
        wide = dtype if limits.bits > 32 or dtype == "uint32" else "int32"
        whole = type_text(wide, lanes)
        cut = "fptoui" if is_unsigned(wide) else "fptosi"
        out = Val(self.text.emit(f"{cut} {writer.type} {x} to {whole}"), wide, lanes)
        if not exact:
            over = self.text.emit(f"fcmp oge {writer.type} {x}, {writer.const(most)}")
            out = self.choose(over, self._whole(int(limits.max), out), out)
        if limits.min:
            number = self.text.emit(f"fcmp ord {writer.type} {value.text}, {writer.const(0.0)}")
            out = self.choose(number, out, self._whole(0, out))
        return self.convert(out, dtype)

    def _rounded(self, value: Val) -> Val:
        """float32 to the bits of bfloat16, to nearest even. Without the target's instruction by
        integer arithmetic: LLVM would call a library."""
        lanes, half = value.lanes, type_text("bfloat16", value.lanes)
        real, whole = type_text("float32", lanes), type_text("int32", lanes)
        if self.rounds_bfloat16:
            native = "bfloat" if lanes == 1 else f"<{lanes} x bfloat>"
            short = self.text.emit(f"fptrunc {real} {value.text} to {native}")
            return Val(self.text.emit(f"bitcast {native} {short} to {half}"), "bfloat16", lanes)
        bits = self.text.emit(f"bitcast {real} {value.text} to {whole}")
        up = self.text.emit(f"lshr {whole} {bits}, {_every('16', lanes)}")
        odd = self.text.emit(f"and {whole} {up}, {_every('1', lanes)}")
        total = self.text.emit(f"add {whole} {bits}, {odd}")
        total = self.text.emit(f"add {whole} {total}, {_every('32767', lanes)}")
        total = self.text.emit(f"lshr {whole} {total}, {_every('16', lanes)}")
        nan = self.text.emit(f"fcmp uno {real} {value.text}, {value.text}")
        mask, quiet = type_text("bool", lanes), _every("32704", lanes)
        total = self.text.emit(f"select {mask} {nan}, {whole} {quiet}, {whole} {total}")
        return Val(self.text.emit(f"trunc {whole} {total} to {half}"), "bfloat16", lanes)

    def _widened(self, value: Val) -> Val:
        """The float32 value of bfloat16 bits."""
        lanes, whole = value.lanes, type_text("int32", value.lanes)
        bits = self.text.emit(f"zext {type_text('bfloat16', lanes)} {value.text} to {whole}")
        bits = self.text.emit(f"shl {whole} {bits}, {_every('16', lanes)}")
        text = f"bitcast {whole} {bits} to {type_text('float32', lanes)}"
        return Val(self.text.emit(text), "float32", lanes)


def _halves(lanes: int) -> str:
    """The type of float16 values, which are kept as their bits."""
    return "half" if lanes == 1 else f"<{lanes} x half>"


def _every(literal: str, lanes: int) -> str:
    """An i32 literal in every lane."""
    return literal if lanes == 1 else f"splat (i32 {literal})"


_FLOAT_OPS = {
    "add": "fadd nsz contract", "sub": "fsub nsz contract", "mul": "fmul nsz contract",
    "div": "fdiv",
}  # fmt: skip
_INT_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or",
    "bit_and": "and", "bit_or": "or", "bit_xor": "xor",
}  # fmt: skip
_SHIFTS = ("shift_left", "shift_right")
_EXTREMES = {
    "max": ("fcmp olt", "icmp slt", "icmp ult"), "min": ("fcmp ogt", "icmp sgt", "icmp ugt"),
    "peak": ("fcmp olt", "icmp slt", "icmp ult"),
}  # fmt: skip
"""Comparisons after which the other operand is taken: for floats, signed and unsigned integers."""
_SIGNIFICANT_BITS = {"float32": 24, "float64": 53}
_INT_MOD = ("srem", "add", "icmp ne", "icmp slt")


def _cast(source: str, target: str) -> str:
    """LLVM's conversion instruction; empty where the types are the same."""
    if source.startswith("float") and target.startswith("float"):
        return "fpext" if target == "float64" else "fptrunc"
    unsigned = source == "bool" or is_unsigned(source)
    if target.startswith("float"):
        return "uitofp" if unsigned else "sitofp"
    before, after = (1 if d == "bool" else ITEM_BYTES[d] * 8 for d in (source, target))
    if before == after:
        return ""
    if before > after:
        return "trunc"
    return "zext" if unsigned else "sext"


def _divides_safely(text: str) -> bool:
    """Whether an integer, as text, is a literal that any number can be divided by."""
    number = re.search(r"(-?\d+)\)?$", text)
    return not text.startswith("%") and number is not None and int(number[1]) not in (0, -1)


def literal(value: float | int | bool, dtype: str) -> str:
    if dtype.startswith("float"):
        return float_text(float(value), dtype)
    if dtype == "bool":
        return "true" if value else "false"
    return str(int(value))
