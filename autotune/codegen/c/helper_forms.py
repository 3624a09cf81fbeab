"""Forms of the helper functions of generated C: parameters, results, polynomials. In: a function's
name and type. Out: text.
"""

from __future__ import annotations

from autotune.codegen.c.dialect import float_constant, split_type, type_name

TWO = (
    "max", "min", "maximum", "minimum", "div", "mod", "pow", "copysign", "fmod", "swish",
    "shift_left", "shift_right",
)  # fmt: skip
"""Functions of two values."""
COMBINED = {
    "sum": "{a} + {b}", "prod": "{a} * {b}",
    "max": "({a} < {b} ? {b} : {a})",
    "maximum": "((({a} < {b}) | ({b} != {b})) ? {b} : {a})",
    "minimum": "((({a} > {b}) | ({b} != {b})) ? {b} : {a})",
}  # fmt: skip
INTEGER_EXTREMES = {
    "maximum": COMBINED["max"], "minimum": "({a} > {b} ? {b} : {a})",
}  # fmt: skip
"""The same where nothing can be a NaN; compilers warn of the question."""


def horner(x: str, coefficients: tuple[float, ...]) -> str:
    """A polynomial, highest power first."""
    text = float_constant(coefficients[0])
    for c in coefficients[1:]:
        text = f"({text} * {x} + {float_constant(c)})"
    return text


def arguments_of(fn: str, kind: str, mask: str) -> str:
    """The parameters of a helper function."""
    if fn == "select":
        return f"{mask} m, {kind} a, {kind} b"
    two = fn in TWO
    if fn == "bits":
        return f"{'u32' if kind == 'f32' else 'f32'} a"
    return f"{kind} a, {kind} b" if two else f"{kind} a"


def result_of(fn: str, kind: str) -> str:
    """The type of its result."""
    _, lanes = split_type(kind)
    if fn in ("widen", "narrow"):
        return type_name("float32" if fn == "widen" else "bfloat16", lanes)
    return kind
