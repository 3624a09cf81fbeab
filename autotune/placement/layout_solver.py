"""The cheapest choices where costs depend on a few of them each. In: how many options every choice
has, and tables of costs. Out: an option for each, the sum the least there is.

Dynamic programming over any graph: choices are eliminated one by one, each time what the tables
with it cost at its best becomes a table of the others in them. A chain or tree never needs a table
of more than two choices; what would need too large ones is searched choice by choice instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_ENTRIES = 1 << 16
"""Entries of a table that is made on the way, at most: a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """`costs[i, j, ...]`: with option i of the first of `names`, j of the second, ..."""

    names: tuple[str, ...]
    costs: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(self.names) != self.costs.ndim or len(set(self.names)) != len(self.names):
            raise ValueError(f"one dimension of costs for each of {self.names}, please")

    def at(self, options: Mapping[str, int]) -> float:
        return float(self.costs[tuple(options[name] for name in self.names)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An option per choice. `exact`: whether no other options cost less."""

    options: Mapping[str, int]
    cost: float
    exact: bool


def solve(
    sizes: Mapping[str, int], tables: Sequence[CostTable], most_entries: int = MOST_ENTRIES
) -> Solution:
    """`sizes`: options of every choice, at least one. Of equally cheap options the first ones;
    without tables larger than `most_entries`, else from all first options downhill."""
    eliminated = _eliminate(sizes, tables, most_entries)
    options = _downhill(sizes, tables) if eliminated is None else _recall(eliminated)
    cost = sum(table.at(options) for table in tables)
    return Solution(
        options={name: options[name] for name in sizes}, cost=cost, exact=eliminated is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Eliminated:
    """A choice, and its best option as a table of those that were left."""

    name: str
    others: tuple[str, ...]
    best: npt.NDArray[np.intp]


def _eliminate(
    sizes: Mapping[str, int], tables: Sequence[CostTable], most_entries: int
) -> list[_Eliminated] | None:
    """Every choice, in the order of elimination; None where a table gets too large."""
    tables, out = list(tables), []
    scopes = {name: _scope(name, tables) for name in sizes}
    while scopes:
        name = min(scopes, key=lambda n: _entries(scopes[n], sizes))
        others = scopes.pop(name)
        if _entries(others, sizes) > most_entries:
            return None
        whole = (*others, name)
        total = np.zeros([sizes[n] for n in whole])
        for table in tables:
            if name in table.names:
                total = total + _spread(table, whole)
        out.append(_Eliminated(name=name, others=others, best=total.argmin(axis=-1)))
        tables = [t for t in tables if name not in t.names]
        tables.append(CostTable(names=others, costs=total.min(axis=-1)))
        scopes |= {other: _scope(other, tables) for other in others}
    return out


def _scope(name: str, tables: Sequence[CostTable]) -> tuple[str, ...]:
    """The other choices in the tables with this one."""
    return tuple(dict.fromkeys(n for t in tables if name in t.names for n in t.names if n != name))


def _entries(names: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    out = 1
    for name in names:
        out *= sizes[name]
    return out


def _spread(table: CostTable, whole: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """The table's costs with a dimension for each of `whole`."""
    order = sorted(range(len(table.names)), key=lambda d: whole.index(table.names[d]))
    shape = iter(table.costs.transpose(order).shape)
    return table.costs.transpose(order).reshape(
        [next(shape) if name in table.names else 1 for name in whole]
    )


def _recall(eliminated: Sequence[_Eliminated]) -> dict[str, int]:
    """From the last one back, each at its best for those that are known."""
    options: dict[str, int] = {}
    for one in reversed(eliminated):
        options[one.name] = int(one.best[tuple(options[name] for name in one.others)])
    return options


def _downhill(sizes: Mapping[str, int], tables: Sequence[CostTable]) -> dict[str, int]:
    """Choice by choice to its cheapest option, until none gets cheaper."""
    options = dict.fromkeys(sizes, 0)
    meeting = {name: [t for t in tables if name in t.names] for name in sizes}
    changed = True
    while changed:
        changed = False
        for name, count in sizes.items():
            costs = [sum(t.at({**options, name: o}) for t in meeting[name]) for o in range(count)]
            best = int(np.argmin(costs))
            if costs[best] < costs[options[name]]:
                options[name], changed = best, True
    return options
