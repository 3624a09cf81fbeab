"""A task with sizes known at run time, at given sizes. In: values of its symbols. Out: a task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from autotune.errors import ScheduleError, UndecidedError
from autotune.shapes import attr_with
from autotune.sizes import (
    Factor,
    Quotient,
    SizeSymbol,
    is_size,
    surely_at_most,
    surely_less,
    symbol,
    symbols_of,
    value_at,
)
from autotune.types import Layout, Task, TaskValue

LOWS = tuple(1 << n for n in range(12))
"""Least sizes that are tried."""


def task_symbols(task: Task) -> frozenset[SizeSymbol]:
    """Every symbol that a task's shapes and attributes depend on."""
    return frozenset().union(*map(symbols_of, task_amounts(task)))


def task_amounts(task: Task) -> Iterator[Any]:
    """Every extent of a task's shapes, and what its attributes hold."""
    for value in task.values:
        yield from value.type.shape
    for node in task.nodes:
        for _, attr in node.attrs:
            yield from _flat(attr)


def _flat(value: Any) -> Iterator[Any]:
    """What tuples hold, however deep."""
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def task_at(task: Task, values: Mapping[str, int]) -> Task:
    """The task where its symbols have these values. KeyError for one that is missing."""
    return task_with(task, lambda e: value_at(e, values), lambda v: layout_at(v.layout, values))


def task_with(
    task: Task, amount: Callable[[int], int], layout: Callable[[TaskValue], Layout]
) -> Task:
    """The task with `amount` of each extent and attribute, its tensors laid out by `layout`, which
    gets them with their old shapes."""

    def made(value: TaskValue) -> TaskValue:
        shape = tuple(amount(e) for e in value.type.shape)
        kind = dataclasses.replace(value.type, shape=shape)
        return dataclasses.replace(value, type=kind, layout=layout(value))

    nodes = (
        dataclasses.replace(node, attrs=tuple((n, attr_with(v, amount)) for n, v in node.attrs))
        for node in task.nodes
    )
    return dataclasses.replace(task, nodes=tuple(nodes), values=tuple(map(made, task.values)))


def task_from(task: Task, lows: Mapping[str, int]) -> Task:
    """The task where symbols are at least so large."""
    return task_with(
        task, lambda e: _size_from(e, lows), lambda value: _layout_from(value.layout, lows)
    )


def of_some(task: Task) -> Task:
    """The task where it makes some elements: where there are none, nothing calls it. Raises
    ScheduleError for one that makes some although there are none of what it reads."""
    names = {s.name for s in task_symbols(task) if not s.low}
    (output,) = task.by_role("output")
    for name in sorted(names):
        made = _size_at_zero(output.type.size, name)
        read = [_size_at_zero(value.type.size, name) for value in task.by_role("input")]
        if made and not all(read):
            raise ScheduleError(f"{task.op} reads what there may be nothing of ({name})")
    some = [name for name in names if _size_at_zero(output.type.size, name) == 0]
    return task_from(task, dict.fromkeys(some, 1)) if some else task


def _size_at_zero(amount: int, name: str) -> int:
    """An amount where a symbol is zero, and all others are large."""
    return value_at(amount, {s.name: (s.name != name) << 12 for s in symbols_of(amount)})


def deciding_lows(error: UndecidedError) -> dict[str, int]:
    """From which sizes on, by symbol, what could not be decided is; as few symbols as that takes.
    None where ranges end before that, or it is no question of what is less."""
    if error.question is None:
        return {}
    first, second = error.question
    symbols = sorted(symbols_of(first) | symbols_of(second), key=lambda s: s.name)
    for low in LOWS:
        lows = {s.name: low for s in symbols if s.low < low}
        if any(s.high < low for s in symbols):
            return {}
        if _is_decided(first, second, lows):
            for name in list(lows):
                fewer = {n: low for n in lows if n != name}
                lows = fewer if _is_decided(first, second, fewer) else lows
            below = max((s.low for s in symbols if s.name in lows), default=0)
            return _least_lows(first, second, max(low // 2, below), low, list(lows))
    return {}


def _least_lows(
    first: int, second: int, low: int, high: int, names: Sequence[str]
) -> dict[str, int]:
    """The least sizes above `low` from which on it is decided, as it is from `high` on."""
    while high - low > 1:
        middle = (low + high) // 2
        decided = _is_decided(first, second, dict.fromkeys(names, middle))
        low, high = (low, middle) if decided else (middle, high)
    return dict.fromkeys(names, high)


def _is_decided(first: int, second: int, lows: Mapping[str, int]) -> bool:
    """Whether the one is less than the other, or not, at all sizes from these on."""
    one, two = _size_from(first, lows), _size_from(second, lows)
    return surely_less(one, two) or surely_at_most(two, one)


def _size_from(amount: int, lows: Mapping[str, int]) -> int:
    """The amount of symbols that are at least so large, by name."""
    if not is_size(amount):
        return amount
    return sum(
        c * math.prod(_factor_from(f, lows) for f in product) for product, c in amount.terms
    )


def _factor_from(factor: Factor, lows: Mapping[str, int]) -> int:
    if isinstance(factor, Quotient):
        return _size_from(cast(int, factor.size), lows) // factor.divisor
    return symbol(factor.name, max(factor.low, lows.get(factor.name, 0)), factor.high)


def _layout_from(layout: Layout, lows: Mapping[str, int]) -> Layout:
    return dataclasses.replace(layout, strides=tuple(_size_from(s, lows) for s in layout.strides))


def layout_at(layout: Layout, values: Mapping[str, int]) -> Layout:
    strides = tuple(value_at(s, values) for s in layout.strides)
    return dataclasses.replace(layout, strides=strides)
