"""Views that importers of every format make: ranges of axes, channels last. In: values of a graph
being built. Out: values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.shapes import whole
from autotune.sizes import any_size, ceil_div, greatest, is_size, surely_at_most
from autotune.types import Array


def positive_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ModelError where there is no such axis."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


def different_axes(axes: Iterable[int], rank: int) -> set[int]:
    """Axes counted from the front. Raises ModelError where one is given twice."""
    given = [positive_axis(axis, rank) for axis in axes]
    if len(set(given)) < len(given):
        raise ModelError(f"axes {sorted(given)} have one of them twice")
    return set(given)


class OpenRange(NamedTuple):
    """A range some of whose numbers only a run knows."""

    start: int
    stop: int
    step: int


Elements = range | OpenRange


def select_ranges(n: Assembler, x: str, ranges: Mapping[int, Elements]) -> str:
    """The elements of some axes that ranges select: one slice, and a gather per backward range."""
    forward = {a: r for a, r in ranges.items() if r.step > 0}
    extents = n.shape(x)
    full = [forward.get(a, OpenRange(0, e, 1)) for a, e in enumerate(extents)]
    if any((r.start, r.stop, r.step) != (0, e, 1) for r, e in zip(full, extents, strict=True)):
        x = n.op(
            "slice", x, starts=tuple(r.start for r in full),
            stops=tuple(_stop(r) for r in full), steps=tuple(r.step for r in full),
        )  # fmt: skip
    for axis, backward in ranges.items():
        if backward.step < 0:
            x = n.op("gather", x, _places(n, backward), axis=axis)
    return x


def _places(n: Assembler, elements: Elements) -> str:
    """The elements of a backward range, one after the other."""
    if isinstance(elements, range):
        return n.constant([*elements], "int64")
    start, stop, step = elements
    return counted_up(n, start, ceil_div(start - stop, -step), step)


def counted_up(n: Assembler, start: int, count: int, step: int = 1, dtype: str = "int64") -> str:
    """start, start + step, ..., `count` of them: the beginning of the most that there can be."""
    most, base = greatest(count), 0 if is_size(start) else start
    n.made(most)
    longest = n.constant(np.arange(most, dtype=np.int64) * step + base, dtype)
    row = select_ranges(n, longest, {0: OpenRange(0, count, 1)})
    return n.op("add", row, n.scalar(start, dtype)) if is_size(start) else row


def as_range(positions: Array) -> range | None:
    """Positions that ascend evenly, as a range; None where they do not, or there are none."""
    flat = positions.ravel()
    if flat.size == 0:
        return None
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    run = range(int(flat[0]), int(flat[-1]) + 1, step or 1)
    return run if step > 0 and np.array_equal(flat, np.array(run)) else None


def triangle(n: Assembler, x: str, offset: int, *, upper: bool) -> str:
    """Matrices with zeros below, or above, a diagonal."""
    rows, columns = n.shape(x)[-2:]
    kept = _triangle(n, rows, columns, offset, upper=upper)
    return n.op("and", kept, x) if n.dtype(x) == "bool" else n.op("where", kept, x, n.like(0, x))


def _triangle(n: Assembler, rows: int, columns: int, offset: int, *, upper: bool) -> str:
    """Where a matrix is at or above, or at or below, a diagonal."""
    if any_size((rows, columns)):
        row = n.reshape(counted_up(n, offset, rows), (rows, 1))
        return n.op("ge" if upper else "le", counted_up(n, 0, columns), row)
    n.made(rows, columns)
    mask = np.ones((rows, columns), bool)
    return n.constant(np.triu(mask, offset) if upper else np.tril(mask, offset))


def repeat_heads(n: Assembler, x: str, count: int) -> str:
    """Every head of [..., heads, rows, width] several times, so that there are `count`."""
    *batch, heads, rows, width = n.shape(x)
    if heads == count:
        return x
    apart = n.reshape(x, (*batch, heads, 1, rows, width))
    many = n.op("expand", apart, shape=(*batch, heads, count // heads, rows, width))
    return n.reshape(many, (*batch, count, rows, width))


def log_sum_exp(n: Assembler, x: str, axes: tuple[int, ...]) -> str:
    """max + log(sum(exp(x - max))), its axes kept: does not overflow. An infinite largest element
    is not taken away: infinity less itself is no number."""
    top = n.op("reduce_max", x, axes=axes, keepdims=True)
    finite = n.op("lt", n.op("abs", top), n.like(math.inf, top))
    top = n.op("where", finite, top, n.like(0, top))
    total = n.op("reduce_sum", n.op("exp", n.op("sub", x, top)), axes=axes, keepdims=True)
    return n.op("add", top, n.op("log", total))


def _stop(elements: Elements) -> int:
    """Where they end, if there are any."""
    if surely_at_most(elements.start, elements.stop):
        return elements.stop
    return max(elements.stop, elements.start)


def expand_to(n: Assembler, x: str, extents: Sequence[int]) -> str:
    same = n.shape(x) == tuple(extents)
    return x if same else n.op("expand", x, shape=tuple(map(whole, extents)))


def to_nhwc(n: Assembler, x: str) -> str:
    """NCHW (or NCW, given a height of 1; or NCDHW) to channels last."""
    shape = n.shape(x)
    if len(shape) not in (3, 4, 5):
        raise UnsupportedOpError(
            f"the input has shape {shape}; only [N,C,W], [N,C,H,W] and [N,C,D,H,W] are supported"
        )
    if len(shape) == 3:
        x = n.reshape(x, (*shape[:2], 1, shape[2]))
    rank = n.rank(x)
    return n.transpose(x, (0, *range(2, rank), 1))


def from_nhwc(n: Assembler, y: str, rank: int) -> str:
    """Back to channels first, to NCW where the model's tensors have rank 3."""
    last = n.rank(y) - 1
    y = n.transpose(y, (0, last, *range(1, last)))
    if rank == 3:
        batch, channels, _, width = n.shape(y)
        y = n.reshape(y, (batch, channels, width))
    return y
