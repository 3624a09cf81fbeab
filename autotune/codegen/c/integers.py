"""Functions of integers in generated code of the C family, where C leaves the result open.

In: types by their short names. Out: bodies of functions. Quotients by zero are 0 and so are their
remainders; the least integer by -1 is itself. Floats become the nearest integer toward zero that
the type holds; NaN becomes 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.codegen.c.dialect import LONG, Dialect, float_constant, split_type

Choose = Callable[[str, str, str, str], str]
"""(type, condition, then, other) -> the expression that picks one, lane by lane."""
_SIGNIFICANT_BITS = {"f32": 24, "f64": 53}


def quotient(kind: str, unsigned: str) -> str:
    """a / b of single integers; `unsigned` is the type to negate them in."""
    turned = f"b == -1 ? ({kind})(0 - ({unsigned})a) : " if kind[0] == "i" else ""
    return f"return b == 0 ? 0 : {turned}a / b;"


def remainder(kind: str) -> str:
    """a % b of single integers, with the sign of b."""
    nothing = "b == 0 || b == -1" if kind[0] == "i" else "b == 0"
    return (
        f"if ({nothing}) return 0; {kind} r = a % b; "
        "return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
    )


def limited(source: str, target: str) -> str:
    """A single float as an integer."""
    limits = np.iinfo(LONG[target])
    low, high = (float_constant(float(v), LONG[source]) for v in (limits.min, limits.max))
    most = f"({target}){limits.max}{'' if limits.min else 'u'}"
    least = f"({target})(-{most} - 1)" if limits.min else "0"
    return f"return a != a ? 0 : a <= {low} ? {least} : a >= {high} ? {most} : ({target})a;"


def limited_lanes(
    dialect: Dialect, choose: Choose, one: Callable[[str], str], source: str, target: str
) -> str:
    """A vector of floats as integers; `one` converts a single float."""
    (real, lanes), (whole, _) = split_type(source), split_type(target)
    limits = np.iinfo(LONG[whole])
    if limits.bits >= _SIGNIFICANT_BITS[real]:  # the largest integer is no float
        each = one("a[i]")
        return f"{target} r; for (int i = 0; i < {lanes}; i++) r[i] = {each}; return r;"
    numbers = (0.0, float(limits.min), float(limits.max))
    zero, low, high = (dialect.splat(source, float_constant(v, LONG[real])) for v in numbers)
    return (
        f"a = {choose(source, 'a == a', 'a', zero)}; "
        f"a = {choose(source, f'a > {low}', 'a', low)}; "
        f"a = {choose(source, f'a < {high}', 'a', high)}; "
        f"return {dialect.convert(source, target, 'a')};"
    )
