"""Shapes and lists of numbers some of which may be sizes that only a run knows.

In: extents, or data for an array. Out: the same by numpy's rules, with sizes as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from autotune.sizes import any_size, is_size, surely_at_most, symbols_of, value_at


def whole(amount: Any) -> int:
    """A number as an `int`; a Size as it is."""
    return cast(int, amount) if is_size(amount) else int(amount)


def attr_with(value: Any, amount: Callable[[int], int]) -> Any:
    """An attribute with `amount` of each size in it."""
    if isinstance(value, tuple):
        return tuple(attr_with(v, amount) for v in value)
    return amount(value) if is_size(value) else value


def as_array(data: Any, dtype: str | None = None) -> npt.NDArray[Any]:
    """numpy's array of numbers; of objects, where some are sizes, which no kernel takes."""
    array = np.asarray(data)
    if array.dtype == object and any_size(array.ravel()):
        return array
    return np.asarray(data, dtype=dtype) if dtype else array


def broadcast_shapes(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """numpy's rule: from the last dimension, 1 repeats. ValueError where shapes do not fit."""
    out: list[int] = []
    for extents in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        others = [e for e in extents if e != 1]
        if any(e != others[0] for e in others):
            raise ValueError(f"{others} differ")
        out.append(others[0] if others else 1)
    return tuple(reversed(out))


def typical(amount: int) -> int:
    """What an amount is where every symbol has the geometric mean of its range: to weigh amounts
    against each other where either way is right."""
    symbols = symbols_of(amount)
    return value_at(amount, {s.name: round((max(s.low, 1) * s.high) ** 0.5) for s in symbols})


def factor_groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The finest grouping of a reshape: (input dimensions, output dimensions) of equal product
    (a coarser one where sizes that only a run knows decide which product is larger).

    Dimensions of extent 1 belong to no group. [6, 1, 4] -> [2, 3, 4] gives ([0], [0, 1]), ([2],
    [2]). Neither shape may hold a zero."""
    ins = [d for d, e in enumerate(before) if e != 1]
    outs = [d for d, e in enumerate(after) if e != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while ins:
        group = ([ins.pop(0)], [outs.pop(0)])
        left, right = before[group[0][0]], after[group[1][0]]
        while left != right:
            less = surely_at_most(left, right) or not surely_at_most(right, left)
            if ins and (less or not outs):
                group[0].append(ins.pop(0))
                left *= before[group[0][-1]]
            else:
                group[1].append(outs.pop(0))
                right *= after[group[1][-1]]
        groups.append(group)
    return groups


def only_moves_units(shape: tuple[int, ...], perm: tuple[int, ...]) -> bool:
    """True where a transpose leaves the dimensions longer than 1 in order: it is a reshape."""
    kept = [p for p in perm if shape[p] != 1]
    return kept == sorted(kept)
