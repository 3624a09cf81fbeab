"""Small tasks for a task of open sizes. In: the task, and how long its output is to be along the
open dimensions. Out: the task at that size, whose kernel `strips` makes one for all sizes.

A length need not be one that the symbols' own values give: of an output of 8 * H rows, 7 rows are
a sample, too, where everything else that the task reads comes out in whole elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import cast

from autotune.errors import ScheduleError
from autotune.sizes import (
    Factor,
    Quotient,
    Size,
    SizeSymbol,
    is_size,
    symbol,
    symbols_of,
    value_at,
)
from autotune.tasks.at_sizes import layout_at, task_amounts, task_with
from autotune.tasks.distinguished import distinguished
from autotune.types import Layout, Task, TaskValue

_LONGEST_SEARCH = 1 << 16
"""Values of a symbol tried where an extent is no multiple of it."""
_MOST_DOUBLED = 16
"""Times that sizes are doubled for a sample to have room."""
_OTHERS = (1, *(1 << n for n in range(1, 11)))
"""Values of the other symbols of an extent: the least that makes their part of it no zero, as an
image's rows that are divided by a stride."""


def open_extents(task: Task) -> tuple[int, ...]:
    """The extents of the output that a run decides, outermost first."""
    (output,) = task.by_role("output")
    return tuple(e for e in output.type.shape if is_size(e))


def sample_task(task: Task, lengths: Sequence[int], sizes: Mapping[str, int]) -> Task:
    """The task whose output has these lengths along its open dimensions, where memory lies as it
    does at `sizes`. Raises ScheduleError where there is none."""
    extents = open_extents(task)
    if len(set(zip(extents, lengths, strict=True))) > len(set(extents)):
        task = distinguished(task)
        extents = open_extents(task)
    given = dict(zip(extents, lengths, strict=True))
    named = [e for value in task.values for e in value.type.shape if is_size(e)]
    if len(given) == len(extents) and given.keys() >= set(named):
        return _task_at(task, lambda e: _of_extent(e, given), sizes)
    try:
        return task_of_values(task, sample_values(extents, lengths, sizes), sizes)
    except ScheduleError:
        freed = _freed(task)
        if not freed:
            raise
    values = {name: value_at(cast(int, Size((((q,), 1),))), sizes) for q, name in freed.items()}
    renamed = [_renamed(e, freed) for e in extents]
    found = sample_values(renamed, lengths, {**sizes, **values})
    return _task_at(task, lambda e: _whole(_renamed(e, freed), found), sizes)


def _freed(task: Task) -> dict[Quotient, str]:
    """Quotients of the output's extents, with a name each, whose symbols the task depends on by
    them alone: any length is a sample then of an output that has every fourth one."""
    amounts = list(task_amounts(task))
    inside = {f for e in open_extents(task) for f in _factors(e) if isinstance(f, Quotient)}
    outside = {s for a in amounts for f in _factors(a) if f not in inside for s in _symbols_in(f)}
    return {q: f"({q.size})//{q.divisor}" for q in inside if not outside & _symbols_in(q)}


def _factors(amount: int) -> Iterator[Factor]:
    if is_size(amount):
        for product, _ in amount.terms:
            yield from product


def _symbols_in(factor: Factor) -> frozenset[SizeSymbol]:
    return symbols_of(Size((((factor,), 1),)))


def _renamed(amount: int, names: Mapping[Quotient, str]) -> int:
    """The amount with symbols for these quotients."""
    if not is_size(amount):
        return amount

    def of(factor: Factor) -> int:
        name = names.get(factor) if isinstance(factor, Quotient) else None
        return symbol(name, 0) if name is not None else cast(int, Size((((factor,), 1),)))

    return sum(c * math.prod(map(of, product)) for product, c in amount.terms)


def task_of_values(task: Task, values: Mapping[str, Fraction], sizes: Mapping[str, int]) -> Task:
    """See `sample_task`."""
    return _task_at(task, lambda e: _whole(e, values), sizes)


def _task_at(task: Task, amount: Callable[[int], int], sizes: Mapping[str, int]) -> Task:
    """The task with `amount` of each extent, where memory lies as at `sizes`, or at larger ones
    that have room for it."""
    made = _task_in(task, amount, sizes)
    for _ in range(_MOST_DOUBLED):
        if not any(map(_overlaps, made.values)):
            return made
        sizes = {name: 2 * size + 1 for name, size in sizes.items()}
        made = _task_in(task, amount, sizes)
    raise ScheduleError("there is no sample: its elements would lie in one place")


def _task_in(task: Task, amount: Callable[[int], int], sizes: Mapping[str, int]) -> Task:
    def layout(value: TaskValue) -> Layout:
        if value.role in ("input", "output"):
            return layout_at(value.layout, sizes)
        return Layout.dense(tuple(map(amount, value.type.shape)))

    return task_with(task, amount, layout)


def _overlaps(value: TaskValue) -> bool:
    """Whether elements lie where others do: rows that are longer than from one to the next."""
    pairs = zip(value.layout.strides, value.type.shape, strict=True)
    axes = sorted((stride, extent) for stride, extent in pairs if stride and extent > 1)
    spans = itertools.accumulate((e - 1) * s for s, e in axes)
    return any(stride <= span for (stride, _), span in zip(axes[1:], spans, strict=False))


def _of_extent(amount: int, lengths: Mapping[int, int]) -> int:
    """The length of an extent of the output. Raises ScheduleError for another size."""
    if is_size(amount) and amount not in lengths:
        raise ScheduleError(f"there is no sample: {amount} is no extent of the output")
    return lengths.get(amount, amount)


def sample_values(
    extents: Sequence[int], lengths: Sequence[int], sizes: Mapping[str, int]
) -> dict[str, Fraction]:
    """Values of symbols that give these extents; where several symbols make one extent, all but
    the last of them are alike, and small. What the output does not depend on is as `sizes` say."""
    found: dict[str, Fraction] = {}
    for extent, length in zip(extents, lengths, strict=True):
        found |= _values_of(extent, length, found)
    return {name: Fraction(size) for name, size in sizes.items()} | found


def _values_of(extent: int, length: int, known: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Values of the symbols that are not known yet, by which the extent has that length."""
    missing = sorted(s.name for s in symbols_of(extent) if s.name not in known)
    for other in _OTHERS if len(missing) > 1 else (1,):
        found = dict.fromkeys(missing[:-1], Fraction(other))
        if missing:
            last = missing[-1]
            found[last] = _solved(extent, last, {**known, **found}, length)
        if value_at(extent, cast(Mapping[str, int], {**known, **found})) == length:
            return found
    raise ScheduleError(f"no sizes make {length} of {extent}")


def _solved(extent: int, name: str, known: Mapping[str, Fraction], length: int) -> Fraction:
    """The value of a symbol for an extent to have that length."""

    def at(value: Fraction) -> Fraction:
        return Fraction(value_at(extent, cast(Mapping[str, int], {**known, name: value})))

    zero, slope = at(Fraction(0)), at(Fraction(1)) - at(Fraction(0))
    if slope and at(exact := (length - zero) / slope) == length:
        return exact
    low, high = 0, _LONGEST_SEARCH
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if at(Fraction(middle)) >= length else (middle + 1, high)
    return Fraction(low)


def _whole(amount: int, values: Mapping[str, Fraction]) -> int:
    """An amount at these values. Raises ScheduleError where it is no whole number of elements."""
    found = value_at(amount, cast(Mapping[str, int], values))
    if found != int(found) or found < 0:
        raise ScheduleError(f"there is no sample: {amount} would be {found}")
    return int(found)
