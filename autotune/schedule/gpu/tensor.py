"""Step that makes tensor cores compute a product: tensorize."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    MATRIX,
    MATRIX_BYTES,
    MATRIX_KINDS,
    MATRIX_SUMS,
    Alloc,
    Apply,
    Buffer,
    For,
    Index,
    Load,
    Mma,
    Program,
    Store,
    Value,
    matching,
    walk,
)
from autotune.program.rewrite import find_buffer, find_loop, loads_of, replace, stores_of
from autotune.schedule.base import register
from autotune.schedule.loops.nest import annotate, perfect_chain
from autotune.types import ITEM_BYTES, SHORT_FLOATS


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Tensorize:
    """A product of two small matrices in shared memory by one instruction of a warp.

    for k in 16: for m in 16: for n in 8: t[m, n] += a.shared[m, k] * b.shared[n, k]   ->
    mma t[0, 0], a.shared[0, 0], b.shared[0, 0]

    `loops`: (m, n, k). `t` becomes a fragment, and so do the loops in `rows` and `columns` that
    set it and use it. The operands are of two bytes (then 16 of k), float32 (8), or bytes (32).
    Of two bytes, `b.shared` may lie the other way, [k, n] (mma across).
    """

    step: ClassVar[str] = "tensorize"
    buffer: str
    loops: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        if len(self.loops) != 3:
            raise ScheduleError(f"expected loops of m, n and k, got {self.loops}")
        program = self._product(program)
        for loops, kind, extent in zip(
            (self.rows, self.columns), MATRIX_KINDS, MATRIX, strict=True
        ):
            for var in loops:
                if find_loop(program, var).extent != extent:
                    raise ScheduleError(f"loop {var} does not have {extent} iterations")
            program = annotate(program, loops, kind)
        return self._fragment(program)

    def _product(self, program: Program) -> Program:
        top = next(
            (s for s in walk(program.body) if isinstance(s, For) and s.var in self.loops), None
        )
        if top is None:
            raise ScheduleError(f"no loop of {self.loops}")
        chain = perfect_chain(top, 3)
        if {c.var for c in chain} != set(self.loops) or len(chain[-1].body) != 1:
            raise ScheduleError(f"{self.loops} are not directly nested in each other")
        store = chain[-1].body[0]
        if not isinstance(store, Store) or store.buffer != self.buffer or store.combine != "sum":
            raise ScheduleError(f"{self.loops} do not add to {self.buffer} alone")
        m, n, k = self.loops
        value = store.value
        if not isinstance(value, Apply) or value.fn != "mul":
            raise ScheduleError("what is added is not a product")
        total = self._place(Load(self.buffer, store.indices), m, n)
        first, second = (_loaded(v) for v in value.args)
        a, across = self._place(first, m, k), second.indices[-1].coefficient(n) == 1
        b = self._place(second, k, n) if across else self._place(second, n, k)
        dtype = find_buffer(program, a.buffer).dtype
        depth = MATRIX_BYTES // ITEM_BYTES[dtype]
        extents = {c.var: c.extent for c in chain}
        if (extents[m], extents[n], extents[k]) != (*MATRIX, depth):
            raise ScheduleError(f"a product of {dtype} is {MATRIX} by {depth}, got {extents}")
        other = find_buffer(program, b.buffer).dtype
        if (
            other != matching(dtype)
            or MATRIX_SUMS.get(dtype) != find_buffer(program, self.buffer).dtype
        ):
            raise ScheduleError(f"no tensor core adds products of {dtype} to {self.buffer}")
        if across and dtype not in SHORT_FLOATS:
            raise ScheduleError(f"columns of {dtype} lie side by side along the reduction only")
        return replace(program, top, (Mma(total, a, b, across),))

    def _place(self, load: Load, row: str, column: str) -> Load:
        """The first element of a matrix whose rows and columns are those loops."""
        *outer, last, inner = load.indices
        others = {v for i in outer for v in i.vars()} & set(self.loops)
        along = (last.coefficient(row), inner.coefficient(column))
        used = [set(i.vars()) & set(self.loops) for i in (last, inner)]
        if others or along != (1, 1) or used != [{row}, {column}]:
            raise ScheduleError(f"{load.buffer} is no matrix of {row} and {column}")
        start = {v: Index() for v in self.loops}
        return Load(load.buffer, tuple(i.substitute(start) for i in load.indices))

    def _fragment(self, program: Program) -> Program:
        alloc = next(
            s for s in walk(program.body) if isinstance(s, Alloc) and s.buffer.name == self.buffer
        )
        if alloc.buffer.scope != "register":
            raise ScheduleError(f"{self.buffer} is not in registers")
        used = [v.indices for v in loads_of(alloc.body) if v.buffer == self.buffer]
        used += [s.indices for s in stores_of(alloc.body, self.buffer)]
        if any(not self._own(indices) for indices in used):
            raise ScheduleError(f"{self.buffer} is used at other elements than a thread's own")
        buffer: Buffer = dataclasses.replace(alloc.buffer, scope="fragment")
        return replace(program, alloc, (Alloc(buffer, alloc.body),))

    def _own(self, indices: tuple[Index, ...]) -> bool:
        """Whether an access is at the row and the column that the loops are at."""
        every = {*self.rows, *self.columns}
        rows, columns = (i.vars() & every for i in indices[-2:])
        return (
            len(rows) == len(columns) == 1
            and rows <= set(self.rows)
            and columns <= set(self.columns)
            and indices[-2].coefficient(min(rows)) == indices[-1].coefficient(min(columns)) == 1
        )


def _loaded(value: Value) -> Load:
    """The element under a conversion to what is summed."""
    converted = isinstance(value, Apply) and value.fn in ("to_float32", "to_int32")
    inner = value.args[0] if converted and isinstance(value, Apply) else value
    if not isinstance(inner, Load):
        raise ScheduleError(f"{value} is not loaded")
    return inner
