"""Values of programs: what statements store, compare and load. In: indices. Out: frozen values.

`autotune.program.ir` has the grammar they belong to, and their names too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.errors import VerifyError
from autotune.program.affine import Index


@dataclass(frozen=True, slots=True)
class Bound:
    """lo <= index < hi."""

    index: Index
    lo: int
    hi: int


# Element functions: name -> number of arguments. Comparisons give bool; `where` takes one first;
# `bits` are those of a float32, as int32; `binade` is the power of two at or below a magnitude;
# `bit_...` and shifts are of integers; `swish` is x / (1 + e**(-slope x)); the gelus are those by
# the error function and by tanh.
FUNCTIONS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "max": 2, "min": 2, "pow": 2, "mod": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "erf": 1, "tanh": 1,
    "sigmoid": 1, "floor": 1, "ceil": 1, "round": 1, "sign": 1, "sin": 1, "cos": 1,
    "reciprocal": 1, "bits": 1, "binade": 1,
    "expm1": 1, "sinh": 1, "cosh": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "asinh": 1,
    "acosh": 1, "atanh": 1, "softplus": 1, "mish": 1, "silu": 1, "swish": 2, "gelu_erf": 1,
    "gelu_tanh": 1,
    "bit_and": 2, "bit_or": 2, "bit_xor": 2, "bit_not": 1, "shift_left": 2, "shift_right": 2,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    "and": 2, "or": 2, "not": 1, "where": 3,
    "to_float32": 1, "to_float64": 1, "to_int32": 1, "to_int64": 1, "to_bool": 1,
    "to_int8": 1, "to_uint8": 1, "to_int16": 1, "to_uint16": 1, "to_uint32": 1, "to_uint64": 1,
    "to_bfloat16": 1, "to_float16": 1,
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
COMBINERS = ("sum", "max", "min", "prod", "peak")
"""Ways to join terms. `max` and `min` of a NaN are NaN; `peak` is the largest number where it is
left open whether a NaN stays: cheaper, for what is NaN in the end anyway (softmax)."""


@dataclass(frozen=True, slots=True)
class Const:
    """A literal. One that is not a number equals another such one, as texts do."""

    value: float | int | bool
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.value != self.value:
            # One object for all of them: tuples and hashes take it by its identity.
            object.__setattr__(self, "value", math.nan)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const):
            return NotImplemented
        return (self.value, self.dtype) == (other.value, other.dtype)

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a buffer (in a tensor expression: of a named tensor)."""

    buffer: str
    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """An element function of FUNCTIONS applied to values."""

    fn: str
    args: tuple[Value, ...]

    def __post_init__(self) -> None:
        if FUNCTIONS.get(self.fn) != len(self.args):
            raise VerifyError(f"{self.fn} takes {FUNCTIONS.get(self.fn)} values, got {self.args}")


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index as a value."""

    index: Index
    dtype: str


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where all bounds hold, else `other`; the branch not taken is not loaded."""

    bounds: tuple[Bound, ...]
    then: Value
    other: Value


@dataclass(frozen=True, slots=True)
class Table:
    """An element of a small constant float32 matrix (row, column), e.g. a Winograd transform."""

    values: tuple[tuple[float, ...], ...]
    row: Index
    column: Index


Value = Const | Load | Apply | IndexValue | Select | Table


def fn(name: str, *args: Value) -> Apply:
    """Shorthand for Apply."""
    return Apply(name, tuple(args))
