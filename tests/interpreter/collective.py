"""What the threads of a warp or block do together, as the interpreter sees it.

In: matrices of `mma`; elements of asynchronous copies; boxes. Out: sums; copies, made as late as
they may be: when their group is waited for; rows of boxes.
"""

from __future__ import annotations

import numpy as np

from autotune.types import Array

Place = tuple[int, ...]


class Copies:
    """Asynchronous copies on their way, of all threads of a block: they commit together."""

    def __init__(self) -> None:
        self._open: list[tuple[Array, Place, Array, Place]] = []
        self._groups: list[list[tuple[Array, Place, Array, Place]]] = []

    def start(self, to: Array, at: Place, source: Array, place: Place) -> None:
        """One element."""
        self._open.append((to, at, source, place))

    def commit(self) -> None:
        self._groups.append(self._open)
        self._open = []

    def wait(self, pending: int) -> None:
        """All but the `pending` newest groups arrive."""
        count = max(0, len(self._groups) - pending)
        for group in self._groups[:count]:
            for to, at, source, place in group:
                to[at] = source[place]
        del self._groups[:count]


def fetched(source: Array, first: list[int], box: tuple[int, ...]) -> Array:
    """A box of an array as rows, zeros where it reaches beyond."""
    out = np.zeros(box, source.dtype)
    inside = [
        slice(max(0, -start), max(0, min(size, extent - start)))
        for start, size, extent in zip(first, box, source.shape, strict=True)
    ]
    moved = [
        slice(part.start + start, part.stop + start)
        for part, start in zip(inside, first, strict=True)
    ]
    if all(part.start < part.stop for part in inside):
        out[tuple(inside)] = source[tuple(moved)]
    return out.reshape(-1, box[-1])


def add_product(total: Array, a: Array, b: Array, dtype: str) -> None:
    """total += a @ b.T, for operands whose elements are of a type."""
    if dtype == "float32":  # what tensor cores see of it
        a, b = (_short(x) for x in (a, b))
    wide = np.int64 if total.dtype.kind == "i" else np.float64
    total += (a.astype(wide) @ b.astype(wide).T).astype(total.dtype)


def _short(x: Array) -> Array:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)
