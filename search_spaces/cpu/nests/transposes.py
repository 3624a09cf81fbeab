"""Data moved into another order: transposes as tiles that are turned in registers.

In: a builder, a nest that stores what it loads. Out: tiles of as many rows and columns as a vector
has lanes, read along the dimension that is innermost in the source and written along the one that
is innermost in the target, with smaller ones at the ends; or, where the last dimension is short,
runs that are interleaved.
"""

from __future__ import annotations

from autotune.program.analysis import recombine
from autotune.program.ir import Alloc, For, If, Index, Load, Program, Store, Value, walk
from autotune.program.rewrite import find_loop, stores_of
from autotune.schedule.loops.nest import Fuse, Reorder, Vectorize
from autotune.schedule.loops.peel_ends import PeelEnds
from autotune.target import Target
from search_spaces.builder import ScheduleBuilder, lanes_of, share

MOST_MOVED = 256
"""Elements moved at a time, at most, by an interleaving transpose."""
GROUPS = (4, 2)
"""Tiles behind each other in what is read."""
WIDEST_TILE = 16
"""Rows and columns of a tile, at most: as many vectors, of bytes, too, as registers turn."""
SHORTEST = 4
"""Elements of a dimension for which tiles are worth their shuffles."""


def schedule_transpose(
    builder: ScheduleBuilder, target: Target, store: Store, loops: list[str]
) -> bool:
    """Schedule the nest of these loops. False where it is no transpose."""
    if len(loops) < 2 or not isinstance(store.value, Load):
        return False
    return _interleave(builder, target, store, loops) or _tile(builder, target, store, loops)


def _interleave(builder: ScheduleBuilder, target: Target, store: Store, loops: list[str]) -> bool:
    """A transpose whose last dimension is short, while the one before it lies side by side in what
    is read: both become one vector, read in runs and shuffled. False where the nest is none."""
    short, run = loops[-1], loops[-2]
    count, length = builder.extent(short), builder.extent(run)
    written, read = steps_of(builder.program, store, store.value, (run, short))
    if count > 16 or length < SHORTEST or written != (count, 1) or read[0] != 1:
        return False
    fits = [d for d in range(SHORTEST, length + 1) if length % d == 0 and d * count <= MOST_MOVED]
    if not fits:
        return False
    builder.split(run, max(fits), f"{run}_o", f"{run}_i")
    builder.apply(Fuse(outer=f"{run}_i", inner=short, fused=f"{run}_v"))
    builder.apply(Vectorize(loops=(f"{run}_v",)))
    share(builder, target, [*loops[:-2], f"{run}_o"], f"{loops[0]}_p")
    return True


def _tile(builder: ScheduleBuilder, target: Target, store: Store, loops: list[str]) -> bool:
    """Tiles that are read along one loop and written along the last. False where no loop but the
    last goes through what is read element by element, or one of the two is too short."""
    lanes, last = min(lanes_of(builder.task, target), WIDEST_TILE), loops[-1]
    written, read = steps_of(builder.program, store, store.value, tuple(loops))
    runs = [v for v, w, r in zip(loops, written, read, strict=True) if r == 1 and w]
    if not runs or runs[-1] == last or written[-1] != 1 or read[-1] == 1:
        return False
    run = runs[-1]
    short = builder.extent(last) < lanes and len(loops) > 2 and loops[-2] != run
    if builder.extent(run) < SHORTEST or (builder.extent(last) < SHORTEST and not short):
        return False
    loops, last = _merged(builder, loops, last, run, lanes)
    loops, run = _merged(builder, loops, run, last, lanes)
    outer = [v for v in loops if v not in (run, last)]
    over, inner = _tiled(builder, outer, (run, last), lanes)
    _peel(builder, over[0])
    _grouped(builder, over)
    _peel(builder, over[1])
    rows, columns = (_copies(builder.program, loop) for loop in inner)
    for row, column in zip(rows, columns, strict=True):
        tile = row.replace(inner[0], f"{run}_v", 1)
        builder.apply(Fuse(outer=row, inner=column, fused=tile))
        builder.apply(Vectorize(loops=(tile,)))
    share(builder, target, outer or over[:1], f"{loops[0]}_p")
    return True


def _merged(
    builder: ScheduleBuilder, loops: list[str], loop: str, other: str, lanes: int
) -> tuple[list[str], str]:
    """The loops, with one that is no multiple of the lanes as one with those before it, as long
    as what it is to write or to read lies side by side and the other loop is none of them."""
    while builder.extent(loop) % lanes and (at := loops.index(loop)) and loops[at - 1] != other:
        fused = f"{loops[at - 1]}_f"
        step = Fuse(outer=loops[at - 1], inner=loop, fused=fused)
        after = step.apply(builder.program)
        (store,) = stores_of((find_loop(after, fused),))
        if not isinstance(store.value, Load):
            break
        (written,), (read,) = steps_of(after, store, store.value, (fused,))
        even = written and read
        if 1 not in (written, read) or not (even or builder.extent(loop) < lanes):
            break
        builder.apply(step)
        loops, loop = [*loops[: at - 1], fused, *loops[at + 1 :]], fused
    return loops, loop


def _tiled(
    builder: ScheduleBuilder, outer: list[str], loops: tuple[str, str], lanes: int
) -> tuple[list[str], list[str]]:
    """The loops over tiles, and those inside one."""
    over, inner = [f"{v}_o" for v in loops], [f"{v}_i" for v in loops]
    for loop, above, below in zip(loops, over, inner, strict=True):
        builder.split(loop, min(lanes, builder.extent(loop)), above, below)
    builder.apply(Reorder(loops=(*outer, *over, *inner)))
    return over, inner


def _grouped(builder: ScheduleBuilder, over: list[str]) -> None:
    """A few tiles behind each other in what is read, before those of the next columns: lines come
    in pairs, and one that two tiles share is there for both."""
    run, last = over
    if run not in builder.loops():  # a single tile, and smaller
        return
    size = next((n for n in GROUPS if builder.extent(run) % n == 0), 1)
    if size > 1 and builder.extent(last) > 1:
        builder.split(run, size, f"{run}_g", f"{run}_t")
        builder.apply(Reorder(loops=(f"{run}_g", last, f"{run}_t")))
        over[0] = f"{run}_g"


def _peel(builder: ScheduleBuilder, loop: str) -> None:
    """Code of its own for the last tiles along a loop where they are smaller."""
    for copy in _copies(builder.program, loop):
        if _is_guarded(builder.program, copy):
            builder.apply(PeelEnds(loop=copy, last=1))


def _copies(program: Program, loop: str) -> list[str]:
    """A loop and what peeling made of it."""
    found = (s.var for s in walk(program.body) if isinstance(s, For))
    return [v for v in found if v == loop or v.startswith(f"{loop}.")]


def _is_guarded(program: Program, loop: str) -> bool:
    inside = walk(find_loop(program, loop).body)
    return any(isinstance(s, If) and any(loop in b.index.vars() for b in s.bounds) for s in inside)


def steps_of(
    program: Program, store: Store, load: Value, loops: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements by which a store and a load move along loops; 0 where one moves in no even
    steps."""
    buffers = {p.name: p for p in program.params}
    buffers |= {s.buffer.name: s.buffer for s in walk(program.body) if isinstance(s, Alloc)}
    out = []
    assert isinstance(load, Load)
    for access in (store, load):
        flat = Index()
        for i, stride in zip(access.indices, buffers[access.buffer].strides, strict=True):
            flat = flat + i * stride
        flat = recombine(flat)
        atoms = [Index(((a, 1),)) for a, _ in flat.terms if not isinstance(a, str)]
        odd = frozenset[str]().union(*(a.vars() for a in atoms))
        out.append(tuple(0 if v in odd else flat.coefficient(v) for v in loops))
    return out[0], out[1]
