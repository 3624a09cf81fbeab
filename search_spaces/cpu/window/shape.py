"""A reduction over a window: its loops, what it reads. In: a task. Out: WindowShape, accesses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.program.ir import Clamp, Compute, Index, Load, Select
from autotune.program.rewrite import value_loads
from autotune.tasks.build import loop_var, node_computes
from autotune.types import Task
from search_spaces.base import Access

_ALONG = ("row", "point")
_FEW_POINTS = 8
"""A point must stand for so many channels at most for weights to matter less than points."""
_WRITTEN_OUT = 32
"""Terms of a window that are code; more of them are loops around its innermost axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowShape:
    """The reduction of a task: its loops, outermost first, as (name, extent)."""

    tensor: str
    axes: tuple[tuple[str, int], ...]
    reduce: tuple[tuple[str, int], ...]
    inner: tuple[tuple[str, int], ...]
    """The innermost of these that are few enough together to be written out."""

    @property
    def unrolled(self) -> bool:
        """Whether all of the window is written out."""
        return self.inner == self.reduce

    @property
    def body(self) -> int:
        """Terms that are written out."""
        return math.prod(e for _, e in self.inner)

    @property
    def around(self) -> dict[str, int]:
        """Names in structures of what stays loops, and their extents."""
        outer = self.reduce[: len(self.reduce) - len(self.inner)]
        return {f"k{i}": e for i, (_, e) in enumerate(outer)}

    @property
    def points(self) -> tuple[str, int]:
        return self.axes[-2] if len(self.axes) > 1 else ("", 1)

    @property
    def rows(self) -> tuple[str, int]:
        return self.axes[-3] if len(self.axes) > 2 else ("", 1)

    @property
    def channels(self) -> tuple[str, int]:
        return self.axes[-1]


def reduction_of(task: Task) -> Compute | None:
    """The anchor's only reduction; None where it has none or several."""
    found = [c for c in node_computes(task, task.nodes[task.anchor]) if c.combine]
    return found[0] if len(found) == 1 else None


def window_of(compute: Compute) -> WindowShape:
    """The loops of a reduction."""
    reduce = tuple((loop_var(compute.output, a.name), a.extent) for a in compute.reduce)
    inner = next(
        reduce[n:]
        for n in range(len(reduce) + 1)
        if math.prod(e for _, e in reduce[n:]) <= _WRITTEN_OUT
    )
    return WindowShape(
        tensor=compute.output,
        axes=tuple((loop_var(compute.output, a.name), a.extent) for a in compute.axes),
        reduce=reduce,
        inner=inner,
    )


def row_strips(w: WindowShape, threads: int, tile_rows: int) -> int:
    """Strips of rows that threads share before blocks of channels, so that each reads what it has
    made itself; 1: none. The contractions around do as much, unless points are few against the
    channels, and their weights are shared instead."""
    rows, rest = divmod(w.rows[1], tile_rows)
    few = w.rows[1] * w.points[1] * _FEW_POINTS < w.channels[1]
    if threads == 1 or rest or few or rows < threads:
        return 1
    return next(strips for strips in range(threads, rows + 1) if rows % strips == 0)


def joins(task: Task, w: WindowShape) -> bool:
    """Whether windows overlap, and the terms of their rows or columns can be combined first: in a
    pool."""
    compute = reduction_of(task)
    if compute is None or not isinstance(compute.body, Load) or compute.dtype != "float32":
        return False
    if task.value(compute.body.buffer).type.dtype != "float32" or not w.unrolled:
        return False
    sides = [e for _, e in w.reduce]
    steps = [abs(c) for dim in accesses(task, w, {})[0].dims for a, c in dim if a in _ALONG]
    return len(sides) == len(steps) == 2 and any(k > s for k, s in zip(sides, steps, strict=True))


def rolls(task: Task, w: WindowShape, axis: str = "row") -> bool:
    """Whether windows overlap along the rows, or points, by no more than half, and are written
    out: what neighbours share is added to both while it is at hand, and each row is read once."""
    if not w.unrolled or not w.rows[0] or len(w.reduce) < 2:
        return False
    dims = [dict(d) for a in accesses(task, w, {})[:-1] for d in a.dims]
    number = _ALONG.index(axis)
    steps = {(d[axis], d.get(f"k{number}", 0)) for d in dims if axis in d}
    return len(steps) == 1 and all(
        k > 0 and step % k == 0 and step // k < w.reduce[number][1] <= 2 * step // k
        for step, k in steps
    )


def slides(task: Task, w: WindowShape) -> bool:
    """Whether a window runs along the channels alone, and is guarded at their ends: whole vectors
    of terms can be computed then, and windows that overlap read parts of them."""
    compute = reduction_of(task)
    if compute is None or not isinstance(compute.body, Select) or not w.unrolled:
        return False
    loads = list(value_loads(compute.body))
    if len(compute.reduce) != 1 or not all(isinstance(v, Load) for v in loads):
        return False
    loop, channel = compute.reduce[0].name, compute.axes[-1].name
    guards = [b.index for b in compute.body.bounds]
    found = [*guards, *(i for v in loads if isinstance(v, Load) for i in v.indices)]
    places = {i for i in found if loop in i.vars()}
    kinds = {task.value(v.buffer).type.dtype for v in loads}
    if len(places) != 1 or not places <= set(guards) or kinds != {compute.dtype}:
        return False
    place = places.pop()
    return len(place.terms) == 2 and place.coefficient(loop) == place.coefficient(channel) == 1


def accesses(task: Task, w: WindowShape, extents: Mapping[str, int]) -> tuple[Access, ...]:
    """What the reduction reads and writes, in the axes of the structure."""
    compute = reduction_of(task)
    if compute is None:
        raise ValueError(f"task {task.key} has no single reduction")
    named = [a.name for a in compute.axes]
    axes = dict.fromkeys(named[:-3], "batch")
    axes |= dict(zip(named[-3:], ("row", "point", "channel")[-len(named) :], strict=True))
    axes |= {a.name: f"k{number}" for number, a in enumerate(compute.reduce)}
    out = []
    for load in value_loads(compute.body):
        if isinstance(load, Load):
            shape = task.value(load.buffer).type.shape
            dims = tuple(_dim(index, axes) for index in load.indices)
            out.append(Access(buffer=load.buffer, item_bytes=4, shape=shape, dims=dims))
    order = [a for a in ("batch", "row", "point", "channel") if a in extents]
    written = Access(
        buffer=w.tensor, item_bytes=4, shape=tuple(extents[a] for a in order), written=True,
        dims=tuple(((a, 1),) for a in order),
    )  # fmt: skip
    return (*out, written)


def _dim(index: Index, axes: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """The (axis, coefficient) pairs of an index; a clamped one as if it were not."""
    out: list[tuple[str, int]] = []
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            out.append((axes[atom], coefficient))
        elif isinstance(atom, Clamp):
            out += _dim(atom.index, axes)
    return tuple(out)
