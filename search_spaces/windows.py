"""Elementwise nests whose last loop is divided or clamped by indices: resizes, mirrored borders.

In: a builder, a nest of one store. Out: vectors along the last loop, as many an iteration as make
every iteration read the same pattern, so that lanes come from windows by a shuffle; iterations at
the ends of the loop, which clamps and guards are there for, have code of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from autotune.program import ir
from autotune.program.rewrite import accesses_of, find_loop, stores_of
from autotune.schedule.loops.nest import Unroll, Vectorize
from autotune.schedule.loops.peel_ends import PeelEnds
from autotune.target import Target
from search_spaces.builder import ScheduleBuilder, lanes_of, share, value_bounds

WIDEST_PATTERN = 8
"""Vectors that a pattern of indices may repeat after."""
MOST_PEELED = 2
"""Iterations peeled at an end."""


def is_patterned(program: ir.Program, loop: str) -> bool:
    """Whether indices divide or clamp a loop, which reads no places from memory along it."""
    atoms = [a for i in _indices(program, loop) for a in _atoms(i, loop)]
    return bool(atoms) and not any(isinstance(a, ir.LoadIndex) for a in atoms)


def schedule_patterned(
    builder: ScheduleBuilder, target: Target, loops: list[str], unroll: int
) -> None:
    """Schedule a nest of these loops, the last of which is patterned."""
    last, lanes = loops[-1], lanes_of(builder.task, target)
    lanes = min(lanes, builder.extent(last))
    wide = math.lcm(_period(builder.program, last), lanes) // lanes
    row = -(-builder.extent(last) // lanes)
    # Where no pattern repeats, lanes are known to lie near each other in what is no loop: in a
    # block and the one that is peeled off behind it.
    if wide <= WIDEST_PATTERN:
        wide = wide * max(1, unroll // wide)
    else:
        wide = min(row, WIDEST_PATTERN) if row <= 2 * WIDEST_PATTERN else unroll
    over, beside, lane = f"{last}_o", f"{last}_u", f"{last}_v"
    builder.split(last, lanes * wide, over, f"{last}_b")
    builder.split(f"{last}_b", lanes, beside, lane)
    if len(loops) > 1 or target.threads == 1:
        peel_borders(builder, over)
    for copy in copies_of(builder, beside):
        if _borders(builder.program, copy):
            builder.apply(PeelEnds(loop=copy, first=builder.extent(copy)))
    builder.apply(Unroll(loops=copies_of(builder, beside)))
    builder.apply(Vectorize(loops=copies_of(builder, lane)))
    share(builder, target, loops[:-1] or [over], f"{loops[0]}_p")


def copies_of(builder: ScheduleBuilder, loop: str) -> tuple[str, ...]:
    """A loop and what peeling made of it."""
    found = (s.var for s in ir.walk(builder.program.body) if isinstance(s, ir.For))
    return tuple(v for v in found if v == loop or v.startswith(f"{loop}."))


def peel_borders(builder: ScheduleBuilder, loop: str) -> None:
    """Peel off the iterations at both ends that leave the fewest borders in those between."""
    extent = builder.extent(loop)
    least, best = _borders(builder.program, loop), (0, 0)
    for first, last in itertools.product(range(MOST_PEELED + 1), repeat=2):
        if not 0 < first + last <= extent:
            continue
        peeled = PeelEnds(loop=loop, first=first, last=last).apply(builder.program)
        left = _borders(peeled, loop) if first + last < extent else 0
        if left < least or (left == least and best != (0, 0) and first + last < sum(best)):
            least, best = left, (first, last)
    if best != (0, 0):
        builder.apply(PeelEnds(loop=loop, first=best[0], last=best[1]))


def _borders(program: ir.Program, loop: str) -> int:
    """Clamps and bounds inside a loop that depend on it, or on a loop in it."""
    top = find_loop(program, loop)
    inside = {s.var for s in ir.walk((top,)) if isinstance(s, ir.For)}
    clamps = sum(
        isinstance(atom, ir.Clamp) for i in _indices(program, loop) for v in inside
        for atom in _atoms(i, v)
    )  # fmt: skip
    bounds = [b for s in stores_of((top,)) for b in value_bounds(s.value)]
    bounds += [b for s in ir.walk((top,)) if isinstance(s, ir.If) for b in s.bounds]
    return clamps + sum(bool(b.index.vars() & inside) for b in bounds)


def _period(program: ir.Program, loop: str) -> int:
    """Iterations of a loop after which the indices that divide it repeat their pattern."""
    found = 1
    for i in _indices(program, loop):
        for atom in _atoms(i, loop):
            if isinstance(atom, ir.FloorDiv | ir.Mod):
                step = atom.index.coefficient(loop)
                found = math.lcm(found, atom.divisor // math.gcd(atom.divisor, step))
    return found


def _indices(program: ir.Program, loop: str) -> Iterator[ir.Index]:
    """Every index inside a loop, of elements and as values."""
    body = find_loop(program, loop).body
    for _, indices in accesses_of(body):
        yield from indices
    for store in stores_of(body):
        yield from _value_indices(store.value)


def _atoms(value: ir.Index, loop: str) -> Iterator[ir.Clamp | ir.FloorDiv | ir.Mod | ir.LoadIndex]:
    """Everything in an index that is not affine and depends on a loop."""
    for atom, _ in value.terms:
        if isinstance(atom, str) or loop not in ir.Index(((atom, 1),)).vars():
            continue
        yield atom
        if not isinstance(atom, ir.LoadIndex):
            yield from _atoms(atom.index, loop)


def _value_indices(value: ir.Value) -> Iterator[ir.Index]:
    if isinstance(value, ir.IndexValue):
        yield value.index
    elif isinstance(value, ir.Apply):
        for part in value.args:
            yield from _value_indices(part)
    elif isinstance(value, ir.Select):
        yield from (*_value_indices(value.then), *_value_indices(value.other))
