"""Functions that generated code of the C family calls: element functions, selection, reduction.

In: names of functions and types as they are needed. Out: the definitions, each once, what they
call before them. OpenCL has most of them built in; C99 gets polynomials that work on vectors (the
same as the LLVM backend's, with its errors) or the C library lane by lane.
"""

from __future__ import annotations

from autotune.codegen.c.dialect import (
    LONG,
    SHORT_BYTES,
    Dialect,
    float_constant,
    mask_of,
    split_type,
    type_name,
)
from autotune.codegen.c.helper_forms import (
    COMBINED,
    INTEGER_EXTREMES,
    TWO,
    arguments_of,
    horner,
    result_of,
)
from autotune.codegen.c.integers import limited, limited_lanes, quotient, remainder
from autotune.codegen.c.math import CMath
from autotune.codegen.formulas import EXP, FORMULAS, LOG
from autotune.codegen.formulas_double import DOUBLE, LIBRARY
from autotune.codegen.llvm.math import ERF_FAR, ERF_NEAR, UNSCALED
from autotune.errors import BuildError
from autotune.types import ITEM_BYTES

BUILT_IN = {
    "exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos",
    "pow": "pow", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint",
    "fabs": "fabs", "copysign": "copysign", "fmod": "fmod", **{name: name for name in LIBRARY},
}  # fmt: skip
"""Element function -> its name in the C library and in OpenCL C."""
PLAIN = {"max": ("a < b", "b", "a"), "min": ("a > b", "b", "a")}
"""Functions that choose one of their arguments: the condition, the choice where it holds, the
other one."""
_POLYNOMIAL = ("exp", "log", "erf")
_COARSE = frozenset(("tanh", "erf", "atan", "atanh"))
"""What OpenCL allows to be more than 4 ulp from the result in float32: written out there, too."""
_SINGLY = frozenset(("sin", "cos", "tan"))
"""What is called for each lane in OpenCL: where one of a vector's numbers is large, PoCL's are
wrong for those that are small."""


class Helpers:
    """The functions used by one file."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._functions: dict[str, str] = {}
        self.types: dict[str, None] = {}

    def text(self) -> list[str]:
        """Definitions of types, then of functions."""
        scalars = [split_type(name)[0] for name in self.types]
        names = [*dict.fromkeys(scalars), *(n for n in self.types if "x" in n)]
        lines = [line for name in names for line in self._dialect.typedef(name)]
        return [*lines, *self._functions.values()]

    def type(self, dtype: str, lanes: int = 1) -> str:
        """A type's name; it will be defined."""
        name = type_name(dtype, lanes)
        self.types[name] = None
        return name

    def call(self, fn: str, kind: str, *args: str) -> str:
        """A call of the function for values of type `kind`, as text."""
        short, lanes = split_type(kind)
        coarse = fn in _COARSE and short == "f32"
        singly = fn in _SINGLY and lanes > 1
        built_in = self._dialect.opencl and fn in BUILT_IN and short in ("f32", "f64")
        if built_in and not coarse and not singly:
            return f"{BUILT_IN[fn]}({', '.join(args)})"
        if self._dialect.opencl and fn == "select" and lanes > 1:
            return f"select({args[2]}, {args[1]}, {args[0]})"
        name = f"{kind}_{fn}"
        if name not in self._functions:
            self.types[kind] = None
            self._define(name, fn, kind)
        return f"{name}({', '.join(args)})"

    def written(self, name: str, text: str) -> None:
        """A definition of the caller's, kept once under its name."""
        self._functions.setdefault(name, text)

    def _define(self, name: str, fn: str, kind: str) -> None:
        short, lanes = split_type(kind)
        self._functions[name] = ""  # keeps a place for recursion to see
        builder = getattr(self, f"_{fn}", None)
        if self._dialect.opencl and fn in _SINGLY:
            body = self._lane_by_lane(fn, kind)
        elif fn in (FORMULAS if short == "f32" else DOUBLE):
            body = CMath(self, kind).body(fn, ("a", "b")[: 1 + (fn in TWO)])
        elif (builder is None and fn in BUILT_IN) or (fn in _POLYNOMIAL and short != "f32"):
            body = self._library(fn, kind)
        elif fn in PLAIN:
            test, then, other = PLAIN[fn]
            body = f"return {self.choose(kind, test, then, other)};"
        elif fn.startswith("reduce_"):
            body = self._halves(kind, fn.removeprefix("reduce_"))
        elif builder is not None:
            body = builder(kind, short, lanes)
        else:
            raise BuildError(f"no {short} code for {fn} in C")
        del self._functions[name]  # after what it calls
        arguments = arguments_of(fn, kind, self._mask(kind))
        result = short if fn.startswith("reduce_") else result_of(fn, kind)
        self._functions[name] = f"static inline {result} {name}({arguments}) {{ {body} }}"

    def _mask(self, kind: str) -> str:
        short, lanes = split_type(kind)
        return self.type(mask_of(short), lanes)

    def _library(self, fn: str, kind: str) -> str:
        """A function of the C library, lane by lane."""
        short, lanes = split_type(kind)
        if short not in ("f32", "f64"):
            raise BuildError(f"no {short} code for {fn} in C")
        name = BUILT_IN[fn] + ("f" if short == "f32" else "")
        two = fn in TWO
        if lanes == 1:
            return f"return {name}(a{', b' if two else ''});"
        given = "a[i], b[i]" if two else "a[i]"
        return f"for (int i = 0; i < {lanes}; i++) a[i] = {name}({given}); return a;"

    def _lane_by_lane(self, fn: str, kind: str) -> str:
        """A function that OpenCL has, of every lane."""
        _, lanes = split_type(kind)
        parts = [f"{BUILT_IN[fn]}({self._dialect.lane('a', i)})" for i in range(lanes)]
        return f"return {self._dialect.literal_vector(kind, parts)};"

    # ------------------------------------------------------------------------------ selection

    def choose(self, kind: str, condition: str, a: str, b: str) -> str:
        _, lanes = split_type(kind)
        if lanes == 1:
            return f"({condition} ? {a} : {b})"
        return self.call("select", kind, condition, a, b)

    def _select(self, kind: str, _short: str, _lanes: int) -> str:
        mask = self._mask(kind)
        return f"return ({kind})((m & ({mask})a) | (~m & ({mask})b));"

    def _maximum(self, kind: str, short: str, _lanes: int) -> str:
        return self._keeping_nan("max", "<", kind, short)

    def _minimum(self, kind: str, short: str, _lanes: int) -> str:
        return self._keeping_nan("min", ">", kind, short)

    def _keeping_nan(self, fn: str, sign: str, kind: str, short: str) -> str:
        """Largest or smallest value, NaN where either is."""
        if short not in ("f32", "f64"):
            return f"return {self.call(fn, kind, 'a', 'b')};"
        return f"return {self.choose(kind, f'((a {sign} b) | (b != b))', 'b', 'a')};"

    def _abs(self, kind: str, short: str, lanes: int) -> str:
        if short in ("f32", "f64"):
            return f"return {self.call('fabs', kind, 'a')};"
        if short.startswith("u"):
            return "return a;"
        if lanes == 1 and ITEM_BYTES[LONG[short]] < 4:
            less = f"({kind})-a"  # computed as an int, which holds it
        else:
            unsigned = self._dialect.reinterpret(self.type(f"u{LONG[short]}", lanes), "a")
            less = self._dialect.reinterpret(kind, f"-{unsigned}")  # of the least integer, too
        return f"return {self.choose(kind, 'a < 0', less, 'a')};"

    def _even_root(self, kind: str, _short: str, lanes: int) -> str:
        """The square root of a that powers are made of: infinity's of minus infinity, 0 of -0."""
        inf, zero = (self._constant(kind, "f32", lanes, v) for v in (float("inf"), 0.0))
        a = self.choose(kind, "a == -INFINITY", inf, "a")
        root = self.call("sqrt", kind, self.choose(kind, "a == 0.0f", zero, "a"))
        return f"a = {a}; return {root};"

    def _unscaled(self, kind: str, _short: str, lanes: int) -> str:
        """What a product that begins with a is multiplied by lest it be denormal."""
        scale, one = (self._constant(kind, "f32", lanes, v) for v in (UNSCALED, 1.0))
        small = f"{self.call('fabs', kind, 'a')} < 1.0f"
        return f"return {self.choose(kind, small, scale, one)};"

    def _sign(self, kind: str, short: str, lanes: int) -> str:
        one, less = (self._constant(kind, short, lanes, v) for v in (1, -1))
        inner = self.choose(kind, "a < 0", less, "a")
        return f"return {self.choose(kind, 'a > 0', one, inner)};"

    def _mod(self, kind: str, short: str, lanes: int) -> str:
        if lanes > 1:
            raise BuildError("no vector code for mod")
        if short not in ("f32", "f64"):
            return remainder(kind)
        rest = self.call("fmod", kind, "a", "b")
        return f"{kind} r = {rest}; return r != 0 && (r < 0) != (b < 0) ? r + b : r;"

    def _div(self, kind: str, short: str, lanes: int) -> str:
        if lanes > 1:
            raise BuildError("no vector code for div of integers")
        return quotient(kind, self.type("uint64" if short in ("i64", "u64") else "uint32"))

    def _shift_left(self, kind: str, short: str, lanes: int) -> str:
        return self._shifted(kind, short, lanes, "<<")

    def _shift_right(self, kind: str, short: str, lanes: int) -> str:
        return self._shifted(kind, short, lanes, ">>")

    def _shifted(self, kind: str, short: str, lanes: int, sign: str) -> str:
        """Bits moved; by their number or more, or by less than none: only the sign is left of
        them, and nothing when they go up."""
        last = 8 * SHORT_BYTES[short] - 1
        outside = f"((b < 0) | (b > {last}))"
        most, zero = (self._constant(kind, short, lanes, v) for v in (last, 0))
        moved = f"({kind})(a {sign} (b & {last}))"
        beyond = f"({kind})(a >> {most})" if sign == ">>" and short[0] == "i" else zero
        return f"return {self.choose(kind, outside, beyond, moved)};"

    def _constant(self, kind: str, short: str, lanes: int, value: float) -> str:
        text = float_constant(value) if short == "f32" else str(int(value))
        return text if lanes == 1 else self._dialect.splat(kind, text)

    # ----------------------------------------------------------------------------- conversions

    def limited(self, source: str, target: str, text: str) -> str:
        """A float cut toward zero and limited to an integer type; NaN is 0."""
        if self._dialect.opencl:
            return f"{self._dialect.converter(target)}_sat({text})"
        name = f"{source}_to_{target}"
        if name not in self._functions:
            self.types |= {source: None, target: None}
            self._functions[name] = ""
            body = self._limited(source, target)
            del self._functions[name]  # after what it calls
            self._functions[name] = f"static inline {target} {name}({source} a) {{ {body} }}"
        return f"{name}({text})"

    def _limited(self, source: str, target: str) -> str:
        (real, lanes), (whole, _) = split_type(source), split_type(target)
        if lanes == 1:
            return limited(source, target)
        return limited_lanes(
            self._dialect, self.choose, lambda x: self.limited(real, whole, x), source, target
        )

    # ------------------------------------------------------------------------------ reductions

    def _halves(self, kind: str, op: str) -> str:
        """All lanes into one, by halves."""
        short, lanes = split_type(kind)
        steps, name, half = [], "a", lanes // 2
        form = COMBINED[op] if short[0] == "f" else INTEGER_EXTREMES.get(op, COMBINED[op])
        if not self._dialect.opencl:
            step = form.format(a="a[i]", b="a[i + w]")
            inner = f"for (int i = 0; i < w; i++) a[i] = {step};"
            return f"for (int w = {half}; w > 0; w /= 2) {inner} return a[0];"
        while half >= 1:
            part = self.type(short, half)
            step = form.format(a=f"{name}.lo", b=f"{name}.hi")
            steps.append(f"{part} v{half} = {step};")
            name, half = f"v{half}", half // 2
        return " ".join(steps) + f" return {name};"

    # ---------------------------------------------------------------------------------- bfloat16

    def _widen(self, kind: str, _short: str, lanes: int) -> str:
        """Bits of bfloat16 to the float32 value."""
        real, whole = self.type("float32", lanes), self.type("uint32", lanes)
        wide = self._dialect.convert(kind, whole, "a")
        return f"return {self._as(real, f'({wide} << 16)')};"

    def _narrow(self, _kind: str, _short: str, lanes: int) -> str:
        """float32 to the bits of bfloat16, to nearest even."""
        whole, half = self.type("uint32", lanes), self.type("bfloat16", lanes)
        bits = f"{whole} u = {self._as(whole, 'a')};"
        total = "((u + ((u >> 16) & 1u) + 32767u) >> 16)"
        out = self._dialect.convert(whole, half, "r")
        if lanes == 1:
            return f"{bits} {whole} r = a != a ? 32704u : {total}; return {out};"
        quiet = self._dialect.splat(whole, "32704u")
        mask = f"({self._as(whole, '(a != a)')})"
        chosen = f"({mask} & {quiet}) | (~{mask} & {total})"
        return f"{bits} {whole} r = {chosen}; return {out};"

    def reinterpreted(self, kind: str, text: str) -> str:
        """A float32's bits as int32, or those of every lane."""
        short, lanes = split_type(kind)
        if self._dialect.opencl or lanes > 1 or short != "i32":
            return self._as(kind, text)
        return f"(({kind}){self._as(self.type('uint32'), text)})"

    def splat(self, kind: str, text: str) -> str:
        """One value in every lane."""
        return self._dialect.splat(kind, text)

    def converted(self, source: str, kind: str, text: str) -> str:
        """A value of another type."""
        return self._dialect.convert(source, kind, text)

    def _binade(self, kind: str, _short: str, lanes: int) -> str:
        """The power of two at or below |a|."""
        bits = self._as(self.type("uint32", lanes), "a")
        return f"return {self._as(kind, f'({bits} & 0x7F800000u)')};"

    def _as(self, kind: str, text: str) -> str:
        """The same bits as another type."""
        _, lanes = split_type(kind)
        if self._dialect.opencl or lanes > 1:
            return self._dialect.reinterpret(kind, text)
        return self.call("bits", kind, text)

    def _bits(self, kind: str, short: str, _lanes: int) -> str:
        """Scalars of C: float32 of its bits, or the bits of a float32."""
        member, other = ("f", "u") if short == "f32" else ("u", "f")
        names = self.type("float32"), self.type("uint32")
        return (
            f"union {{ {names[0]} f; {names[1]} u; }} both; both.{other} = a; "
            f"return ({kind})both.{member};"
        )

    # ------------------------------------------------------------------------------- polynomials

    def _exp_inside(self, kind: str, _short: str, lanes: int) -> str:
        """e**a for -87.336 < a < 88.7228."""
        whole = self.type("uint32", lanes)
        p = horner("r", EXP)
        bits, shifted = self._as(whole, "p"), self._as(whole, "s")
        return (
            f"{kind} s = a * {float_constant(1.4426950408889634)} + 12582912.0f; "
            f"{kind} n = s - 12582912.0f; "
            f"{kind} r = n * {float_constant(-0.693359375)} + a; "
            f"r = n * {float_constant(2.12194440054690583e-4)} + r; {kind} p = {p}; "
            f"return {self._as(kind, f'({bits} + ({shifted} << 23))')};"
        )

    def _exp(self, kind: str, _short: str, lanes: int) -> str:
        big, zero = (self._constant(kind, "f32", lanes, v) for v in (float("inf"), 0.0))
        over = self.choose(kind, "a > 88.72283172607422f", f"(a * {big})", "v")
        under = self.choose(kind, "a < -87.33654f", zero, "v")
        nan = self.choose(kind, "a != a", "a", "v")
        return (
            f"{kind} v = {self.call('exp_inside', kind, 'a')}; v = {over}; v = {under}; "
            f"return {nan};"
        )

    def _sigmoid(self, kind: str, short: str, _lanes: int) -> str:
        one = "1.0f" if short == "f32" else "1.0"
        return f"return {one} / ({one} + {self.call('exp', kind, '-a')});"

    def _log(self, kind: str, _short: str, lanes: int) -> str:
        whole = self.type("int32", lanes)
        unsigned = self.type("uint32", lanes)
        number = [self._constant(kind, "f32", lanes, v) for v in (-23.0, 0.0)]
        inf, minus, nan = (
            self._constant(kind, "f32", lanes, v)
            for v in (float("inf"), float("-inf"), float("nan"))
        )
        bits = self._dialect.convert(unsigned, whole, self._as(unsigned, "x"))
        back = f"(b - (({unsigned})e << 23))" if lanes == 1 else "(b - (e << 23))"
        mantissa = self._as(kind, back)
        below = "!(a >= 0.0f)" if lanes == 1 else "~(a >= 0.0f)"
        real = self._dialect.convert(whole, kind, "e")
        return (
            f"{kind} x = {self.choose(kind, 'a < 0x1p-126f', '(a * 0x1p23f)', 'a')}; "
            f"{kind} n = {self.choose(kind, 'a < 0x1p-126f', number[0], number[1])}; "
            f"{whole} b = {bits}; {whole} e = (b - 0x3F3504F3) >> 23; "
            f"{kind} r = {mantissa} - 1.0f; n = n + {real}; {kind} q = r * r; "
            f"{kind} p = {horner('r', LOG)} * r * q; "
            f"p = n * {float_constant(-2.12194440e-4)} + p; p = q * -0.5f + p; "
            f"p = n * {float_constant(0.693359375)} + (r + p); "
            f"p = {self.choose(kind, 'a == 0.0f', minus, 'p')}; "
            f"p = {self.choose(kind, 'a == INFINITY', inf, 'p')}; "
            f"return {self.choose(kind, below, nan, 'p')};"
        )

    def _erf(self, kind: str, _short: str, lanes: int) -> str:
        four = self._constant(kind, "f32", lanes, 4.0)
        decay = self.call("exp_inside", kind, "p")
        near = "!(x >= 0.92f)" if lanes == 1 else "~(x >= 0.92f)"
        signed = self.choose(kind, "a < 0.0f", "-far", "far")
        return (
            f"{kind} x = {self.call('fabs', kind, 'a')}; {kind} q = a * a; "
            f"{kind} close = a * {horner('q', ERF_NEAR)}; "
            f"{kind} c = {self.choose(kind, 'x > 4.0f', four, 'x')}; "
            f"{kind} p = {horner('c', ERF_FAR)}; {kind} far = 1.0f - {decay}; "
            f"far = {signed}; return {self.choose(kind, near, 'close', 'far')};"
        )
