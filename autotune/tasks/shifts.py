"""Shifts of the places at which tensors are read. In: a task. Out: by how much each tensor's
indices move where the output's index moves by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.tasks.build import task_computes
from autotune.types import Task

Moves = Mapping[int, int]
"""Dimension of the output -> elements by which a tensor's index moves when that one moves by 1."""
Shifts = Mapping[str, tuple[Moves, ...]]
"""Tensor -> per dimension."""


def shifts_of(task: Task, dimensions: Sequence[int]) -> Shifts:
    """Shifts of every tensor's indices with the output's. Raises ScheduleError where the task is
    not the same at every place along these dimensions."""
    computes, _ = task_computes(task)
    (output,) = task.by_role("output")
    rank = len(output.type.shape)
    shifts: dict[str, tuple[Moves, ...]] = {
        output.name: tuple({d: 1} if d in dimensions else {} for d in range(rank))
    }
    for compute in reversed(computes):
        if compute.updates is not None:
            raise ScheduleError(f"{compute.output} is updated where indices in memory say")
        _check_pads(task, compute)
        own = shifts.get(compute.output)
        if own is None:
            raise ScheduleError(f"{compute.output} is read by nothing")
        moving = {a.name: m for a, m in zip(compute.axes, own, strict=True) if m}
        for load in _loads(compute.body, moving):
            found = tuple(_shift(i, moving) for i in load.indices)
            if shifts.setdefault(load.buffer, found) != found:
                raise ScheduleError(f"{load.buffer} is read in two ways")
    return shifts


def limited_dimensions(task: Task, name: str) -> frozenset[int]:
    """Dimensions of a tensor in which indices are limited to its elements."""
    computes, _ = task_computes(task)
    return frozenset(
        dimension
        for compute in computes
        for load in rewrite.value_loads(compute.body)
        if load.buffer == name
        for dimension, at in enumerate(load.indices)
        if clamped_as_whole(at)
    )


def clamped_as_whole(value: ir.Index) -> ir.Clamp | None:
    """An index that is limited as a whole: to the elements of a dimension, by pools."""
    atom = value.terms[0][0] if value.terms else None
    return atom if isinstance(atom, ir.Clamp) and value == ir.Index(((atom, 1),)) else None


# ------------------------------------------------------------------------------------------- parts


def _check_pads(task: Task, compute: ir.Compute) -> None:
    """Zeros around a tensor must lie in memory: a strip's neighbours are no zeros."""
    for tensor, pads in compute.pads:
        value = task.value(tensor)
        there = value.layout.halo
        inside = all(b <= x and a <= y for (b, a), (x, y) in zip(pads, there, strict=True))
        if value.role != "input" or not inside:
            raise ScheduleError(f"{tensor} is padded with zeros that do not lie in memory")


def _loads(value: ir.Value, moving: Mapping[str, Moves]) -> Iterator[ir.Load]:
    """Loads of an expression; nothing else in it may depend on what moves."""
    if isinstance(value, ir.Load):
        yield value
    elif isinstance(value, ir.Apply):
        for arg in value.args:
            yield from _loads(arg, moving)
    elif isinstance(value, ir.Select):
        if any(bound.index.reads(moving.keys()) for bound in value.bounds):
            raise ScheduleError("what is selected depends on the place")
        yield from _loads(value.then, moving)
        yield from _loads(value.other, moving)
    elif isinstance(value, ir.IndexValue) and value.index.reads(moving.keys()):
        raise ScheduleError("a value depends on the place")


def _shift(value: ir.Index, moving: Mapping[str, Moves]) -> Moves:
    out: dict[int, int] = {}
    if clamped := clamped_as_whole(value):
        return _shift(clamped.index, moving)
    for atom, c in value.terms:
        if isinstance(atom, str):
            for dimension, step in moving.get(atom, {}).items():
                out[dimension] = out.get(dimension, 0) + c * step
        elif ir.Index(((atom, 1),)).reads(moving.keys()):
            raise ScheduleError("an index is divided, limited or read from memory")
    return {dimension: step for dimension, step in out.items() if step}
