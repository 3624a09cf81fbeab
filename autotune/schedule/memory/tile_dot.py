"""Step that makes matrix tiles of a CPU (AMX) compute a product: tile_dot."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, For, If, Program, Store, walk
from autotune.program.rewrite import find_loop, replace, stores_of
from autotune.schedule.base import register
from autotune.schedule.loops.nest import perfect_chain

TILE_ROWS = 16
"""Rows of a matrix tile, at most."""
TILE_LANES = 16
"""32-bit elements of a row of a matrix tile, at most."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TileDot:
    """Mark a nest of rows, lanes, groups of neighbours and neighbours as one product of tiles.

    alloc t register: for r in 16: for l in 16: for g in 16: for p in 2 dot:
        t[r, l] += x[r, g, p] * w[g, l, p]
    ->  the same, t in memory of the call and r a `tile` loop

    `loops`: (rows, lanes, groups). While the sums grow they are in tile registers; memory has them
    before and after.
    """

    step: ClassVar[str] = "tile_dot"
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        return tiled(program, self.loops, (TILE_ROWS, TILE_LANES, TILE_ROWS))


def tiled(program: Program, loops: tuple[str, ...], limits: tuple[int, ...]) -> Program:
    """The program with a nest of (rows, lanes, groups), of `limits` iterations at most, as one
    product, and its sums in memory. Raises ScheduleError."""
    if len(loops) != len(limits):
        raise ScheduleError(f"expected loops of rows, lanes and groups, got {loops}")
    chain = perfect_chain(find_loop(program, loops[0]), 3)
    inner = chain[-1].body[0]
    if tuple(c.var for c in chain) != loops:
        raise ScheduleError(f"{loops} are not directly nested in this order")
    if not isinstance(inner, For) or inner.kind != "dot" or len(chain[-1].body) != 1:
        raise ScheduleError(f"{loops} do not hold a dot loop alone")
    for loop, most in zip(chain, limits, strict=True):
        if loop.extent > most:
            raise ScheduleError(f"loop {loop.var} has more than {most} iterations")
    (store,) = (s for s in walk(inner.body) if not isinstance(s, If))
    assert isinstance(store, Store)  # as `dot` has found it
    rows = chain[0]
    program = replace(program, rows, (For(rows.var, rows.extent, "tile", rows.body),))
    return _in_memory(program, store.buffer)


def _in_memory(program: Program, buffer: str) -> Program:
    """The sums in memory of the call, a tile's rows apart."""
    alloc = next(
        (s for s in walk(program.body) if isinstance(s, Alloc) and s.buffer.name == buffer), None
    )
    if alloc is None or alloc.buffer.scope != "register":
        raise ScheduleError(f"{buffer} is not in registers")
    if any(s.combine not in (None, "", "sum") for s in stores_of(alloc.body, buffer)):
        raise ScheduleError(f"{buffer} is more than a sum")
    moved = dataclasses.replace(alloc.buffer, scope="scratch")
    return replace(program, alloc, (Alloc(moved, alloc.body),))
