"""Loops that are tiles of sums of products of bytes. In: a loop, what writes it. Out: a DotTile,
or None.

Such a loop holds loops that are written out, around one `dot` of bytes, and perhaps more loops of
the reduction. All of these are one run of words: an outer one goes on where an inner one ends; or
they are several such runs, each as far from the one before it. The four bytes of a `dot` lie side
by side, or in turn with those of another row, the even ones first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from autotune.codegen.c.dot_tile import WIDEN, DotTile, Side
from autotune.codegen.c.index import CLinear
from autotune.codegen.c.statement import CStatementWriter
from autotune.program import ir

_WORD = 4
"""Bytes of a word, products of a `dot`."""
BYTE_PLACES: Mapping[tuple[int, ...], int] = {(0, 1, 2, 3): 1, (0, 4, 2, 6): 2}
"""How many rows lie in turn, by the places of a row's bytes."""
_Points = Sequence[Mapping[str, int]]


def tile_of(writer: CStatementWriter, loop: ir.For) -> DotTile | None:
    """The loop as a tile, where it is one."""
    found = nest_of(loop)
    if found is None or not _is_dot(found[0]):
        return None
    loops, guards, store = found
    factors = factors_of(store, loops[-1].var)
    if factors is None or not writer.in_registers(store.buffer):
        return None
    env = dict(writer.env)
    try:
        return _tile(writer, loops, guards, store, factors)
    finally:
        writer.env.clear()
        writer.env.update(env)


def nest_of(loop: ir.For) -> tuple[list[ir.For], list[ir.Bound], ir.Store] | None:
    """Loops, a `dot` last where there is one, what must hold, and the sum that is inside."""
    loops: list[ir.For] = []
    bounds: list[ir.Bound] = []
    now: ir.Stmt = loop
    while isinstance(now, ir.For | ir.If):
        if len(now.body) != 1 or (loops and loops[-1].kind == "dot" and isinstance(now, ir.For)):
            return None
        if isinstance(now, ir.If):
            bounds += now.bounds
        else:
            loops.append(now)
            if now.extent != 1 and now.kind not in ("serial", "unroll", "dot"):
                return None
        now = now.body[0]
    if not isinstance(now, ir.Store) or now.combine != "sum":
        return None
    return loops, bounds, now


def _is_dot(loops: Sequence[ir.For]) -> bool:
    return loops[-1].kind == "dot" and loops[-1].extent == _WORD


def factors_of(store: ir.Store, dot: str = "") -> tuple[ir.Load, ir.Load] | None:
    """The bytes that are multiplied; None where they are anything else, or their places are no
    sums of loop variables, and of anything that is known by the variable `dot`."""
    if not isinstance(store.value, ir.Apply) or store.value.fn != "mul":
        return None
    out = []
    for arg in store.value.args:
        if not isinstance(arg, ir.Apply) or arg.fn != "to_int32":
            return None
        (load,) = arg.args
        if not isinstance(load, ir.Load):
            return None
        if any(_is_other(atom, dot) for i in load.indices for atom, _ in i.terms):
            return None
        out.append(load)
    return out[0], out[1]


def _is_other(atom: ir.Atom, known: str) -> bool:
    """Whether an index has more than a variable, and than what one that is known says."""
    if isinstance(atom, str):
        return False
    return not isinstance(atom, ir.FloorDiv | ir.Mod) or atom.index.vars() != {known}


def _tile(
    writer: CStatementWriter, loops: list[ir.For], bounds: list[ir.Bound], store: ir.Store,
    factors: tuple[ir.Load, ir.Load],
) -> DotTile | None:  # fmt: skip
    summed = {v for i in store.indices for v in i.vars()}
    tile = [x for x in loops[:-1] if x.var in summed]
    run = [x for x in loops[:-1] if x.var not in summed and x.extent != 1]
    if any(x.kind == "serial" and x.extent != 1 for x in tile):
        return None
    writer.env.update((x.var, 0) for x in loops)
    if {v for b in bounds for v in b.index.vars()} & {x.var for x in (*run, loops[-1])}:
        return None
    points = []
    for at in itertools.product(*(range(x.extent) for x in tile)):
        where = dict(zip([x.var for x in tile], at, strict=True))
        writer.env.update(where)
        holds = writer.condition(bounds)
        if isinstance(holds, str):
            return None
        if holds:
            points.append(where)
    if not points:
        return None
    writer.env.update((x.var, 0) for x in tile)
    for outer in (0, 1)[: max(len(run), 1)]:
        sides = [_side(writer, load, [*run, loops[-1]], points, outer) for load in factors]
        if None not in sides:
            break
    else:
        return None
    rows, columns = (s for s in sides if s is not None)
    sums = _sums(writer, store, points, rows, columns)
    if sums is None:
        return None
    words = math.prod(x.extent for x in run[outer:])
    runs = math.prod(x.extent for x in run[:outer])
    return DotTile(rows=rows[0], columns=columns[0], sums=sums, words=words, runs=runs)


def _side(
    writer: CStatementWriter, load: ir.Load, run: list[ir.For], points: _Points, runs: int
) -> tuple[Side, list[int]] | None:
    """One operand, and the row of each point; None where the loops, but for the first `runs`, are
    not one run of words."""
    buffer = writer.buffers[load.buffer]
    if buffer.dtype not in WIDEN or buffer.scope == "register" or buffer.swizzle:
        return None

    def at(where: Mapping[str, int]) -> CLinear:
        before = {v: writer.env[v] for v in where}
        writer.env.update(where)
        out = writer.flat(buffer, load.indices)
        writer.env.update(before)
        return out

    first = at({})
    outer = [at({x.var: 1}).const - first.const for x in run[:-1]]
    rows = BYTE_PLACES.get(tuple(at({run[-1].var: n}).const - first.const for n in range(_WORD)))
    if rows is None:
        return None
    between, outer = outer[:runs], outer[runs:]
    step = outer[-1] if outer else rows * _WORD
    wanted = step
    for loop, apart in zip(reversed(run[runs:-1]), reversed(outer), strict=True):
        if apart != wanted:
            return None
        wanted = apart * loop.extent
    places = [at(where) for where in points]
    if any(p.terms != first.terms for p in places):
        return None
    offsets = sorted({p.const for p in places})
    multiples = (*(factor for _, factor in first.terms), *offsets, *between, step)
    side = Side(
        pointer=writer.place(buffer, CLinear(first.terms, offsets[0])),
        kind=writer.helpers.type(buffer.dtype),
        dtype=buffer.dtype,
        offsets=tuple(o - offsets[0] for o in offsets),
        step=step,
        run_step=sum(between),
        aligned=load.buffer in writer.constants and all(n % _WORD == 0 for n in multiples),
        in_turn=rows,
    )
    return side, [offsets.index(p.const) for p in places]


def _sums(
    writer: CStatementWriter, store: ir.Store, points: _Points,
    rows: tuple[Side, list[int]], columns: tuple[Side, list[int]],
) -> tuple[tuple[str, ...], ...] | None:  # fmt: skip
    """Variables of the sums, by row and column; None where not every pair has one."""
    out = writer.buffers[store.buffer]
    names: dict[tuple[int, int], str] = {}
    for where, row, column in zip(points, rows[1], columns[1], strict=True):
        writer.env.update(where)
        names[row, column] = writer.cell(out, writer.flat(out, store.indices)).text
    high, wide = len(rows[0].offsets), len(columns[0].offsets)
    whole = len(names) == len(points) == high * wide == len(set(names.values()))
    if not whole or store.buffer in writer.conflicts:
        return None
    return tuple(tuple(names[r, c] for c in range(wide)) for r in range(high))
