"""Data moved in runs: heads taken apart, blocks of space put into channels.

In: a builder, a nest that stores what it loads and writes runs of elements. Out: the nest in the
order in which it reads: a core waits for what it reads at many places, hardly for what it writes
there. Where runs are every few elements of what is read, those between them are moved beside
them, from the same vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.program.analysis import recombine
from autotune.program.ir import Atom, FloorDiv, Index, Load, Mod, Program
from autotune.program.rewrite import find_loop, stores_of
from autotune.schedule.base import Step
from autotune.schedule.loops.nest import Reorder, Split, Unroll, Vectorize
from autotune.target import Target
from search_spaces.builder import ScheduleBuilder, lanes_of, schedule_elementwise, share
from search_spaces.cpu.nests.transposes import steps_of

MOST_BESIDE = 8
"""Runs that are taken from the same vectors."""


def schedule_runs(builder: ScheduleBuilder, target: Target, loops: list[str], unroll: int) -> bool:
    """Schedule the nest of these loops. False where it does not move runs, or reads them in order
    already."""
    (store,) = stores_of((find_loop(builder.program, loops[0]),))
    if not isinstance(store.value, Load):
        return False
    splits, program = _apart(builder.program, loops)
    for step in splits:
        at = loops.index(step.loop)
        loops = [*loops[:at], step.outer, step.inner, *loops[at + 1 :]]
    (store,) = stores_of((find_loop(program, loops[0]),))
    assert isinstance(store.value, Load)
    written, read = steps_of(program, store, store.value, tuple(loops))
    extents = [find_loop(program, v).extent for v in loops]
    if written[-1] != 1 or not all(r > 0 or e == 1 for r, e in zip(read, extents, strict=True)):
        return False
    # Loops of one iteration go outside.
    far = {v: (e == 1, r) for v, e, r in zip(loops, extents, read, strict=True)}
    last, order = loops[-1], sorted(loops[:-1], key=far.__getitem__, reverse=True)
    if read[-1] == 1 and order != loops[:-1]:
        _commit(builder, (*splits, Reorder(loops=(*order, last))))
        schedule_elementwise(builder, target, [*order, last], unroll)
        return True
    lanes = lanes_of(builder.task, target)
    near = order[-1] if order else last
    size = dict(zip(loops, extents, strict=True))[near]
    if far[near][1] != 1 or not 1 < size == read[-1] <= MOST_BESIDE or extents[-1] % lanes:
        return False
    _commit(builder, splits)
    builder.split(last, lanes, f"{last}_o", f"{last}_v")
    outer = [*order[:-1], f"{last}_o"]
    builder.apply(Reorder(loops=(*outer, near, f"{last}_v")))
    builder.apply(Unroll(loops=(near,)))
    builder.apply(Vectorize(loops=(f"{last}_v",)))
    share(builder, target, outer, f"{outer[0]}_p")
    return True


def _commit(builder: ScheduleBuilder, steps: Sequence[Step]) -> None:
    for step in steps:
        builder.apply(step)


def _apart(program: Program, loops: list[str]) -> tuple[list[Split], Program]:
    """What takes loops apart where indices divide them, and the program it gives."""
    out: list[Split] = []
    for loop in loops[:-1]:
        rest = loop
        for number, size in enumerate(_divisors(program, loop)):
            extent = find_loop(program, rest).extent
            if extent % size == 0 and 1 < size < extent:
                inner = f"{loop}_r{number}"
                out.append(Split(loop=rest, factor=size, outer=f"{loop}_d{number}", inner=inner))
                program, rest = out[-1].apply(program), inner
    return out, program


def _divisors(program: Program, loop: str) -> list[int]:
    """What indices of the nest divide a loop by, the largest first; none where some divide sums
    with others."""
    (store,) = stores_of((find_loop(program, loop),))
    assert isinstance(store.value, Load)
    found: set[int] = set()
    for index in (*store.indices, *store.value.indices):
        for atom, _ in recombine(index).terms:
            sizes = _sizes(atom, loop)
            if sizes is None:
                return []
            found |= sizes
    return sorted(found, reverse=True)


def _sizes(atom: Atom, loop: str) -> set[int] | None:
    """Divisors of one atom, in iterations of the loop; None where it is not of the loop alone."""
    if not isinstance(atom, FloorDiv | Mod) or loop not in atom.index.vars():
        return set()
    inside = atom.index.terms
    if len(inside) != 1 or atom.index.const or inside[0][1] != 1:
        return None
    (inner, _), around = inside[0], 1
    if isinstance(inner, FloorDiv) and inner.index == Index(((loop, 1),)):
        around = inner.divisor
    elif inner != loop:
        return None
    return {around, around * atom.divisor}
