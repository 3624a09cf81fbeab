"""Values of programs: what statements store, compare and load. In: indices. Out: frozen values.

`autotune.program.ir` has the grammar they belong to, and their names too.
"""

from __future__ import annotations

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
# `bits` are those of a float32, as int32.
FUNCTIONS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "max": 2, "min": 2, "pow": 2, "mod": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "erf": 1, "tanh": 1,
    "sigmoid": 1, "floor": 1, "ceil": 1, "round": 1, "sign": 1, "sin": 1, "cos": 1,
    "reciprocal": 1, "bits": 1,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    "and": 2, "or": 2, "not": 1, "where": 3,
    "to_float32": 1, "to_float64": 1, "to_int32": 1, "to_int64": 1, "to_bool": 1,
    "to_int8": 1, "to_uint8": 1, "to_bfloat16": 1, "to_float16": 1,
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
COMBINERS = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: float | int | bool
    dtype: str = "float32"


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
