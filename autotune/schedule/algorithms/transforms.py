"""Products of a matrix that is known and vectors, written out: Winograd's transforms.

In: a matrix, what it is multiplied by, and where to. Out: statements. Rows of points of both signs
share half of their products, and so do columns: these are computed once, in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.program.affine import Index, index
from autotune.program.ir import Buffer, Const, For, Load, Stmt, Store, Table, Value, fn
from autotune.program.rewrite import Body
from autotune.program.winograd import Matrix, factored


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """out[.., row, ..] = sum over column of matrix[row, column] * value[column]."""

    matrix: Matrix
    loops: tuple[str, str]
    """Names of the loops over rows and columns."""
    part: Buffer
    """Registers for what is shared, or none of which any is used: [part, lane]."""
    lane: Index

    @property
    def shares(self) -> bool:
        return self._factors[1] != self.matrix

    @property
    def _factors(self) -> tuple[Matrix, Matrix]:
        return factored(self.matrix)

    @property
    def allocs(self) -> list[Buffer]:
        """Registers that it needs."""
        return [self.part] if self.shares else []

    def body(self, out: str, cell: tuple[Index, ...], value: Value, after: Body = ()) -> Body:
        """The loop over rows; `after` follows each."""
        row, column = self.loops
        if not self.shares:
            each = _combined(out, cell, self.matrix, (row, column), value)
            return (unrolled(((row, len(self.matrix)),), (*each, *after)),)
        combine, parts = self._factors
        name, term = f"{row}_part", f"{row}_term"
        first = _combined(
            self.part.name, (index(name), self.lane), parts, (name, column), value
        )  # fmt: skip
        shared = Load(self.part.name, (index(term), self.lane))
        second = _combined(out, cell, combine, (row, term), shared)
        return (
            unrolled(((name, len(parts)),), first),
            unrolled(((row, len(combine)),), (*second, *after)),
        )


def unrolled(loops: tuple[tuple[str, int], ...], body: Body) -> Stmt:
    for var, extent in reversed(loops):
        body = (For(var, extent, "unroll", body),)
    return body[0]


def _combined(
    name: str, cell: tuple[Index, ...], matrix: Matrix, loops: tuple[str, str], value: Value
) -> Body:
    """cell = sum over the second loop of matrix[first, second] * value."""
    row, column = loops
    term = fn("mul", Table(matrix, index(row), index(column)), value)
    total = For(column, len(matrix[0]), "unroll", (Store(name, cell, term, "sum"),))
    return (Store(name, cell, Const(0.0)), total)
