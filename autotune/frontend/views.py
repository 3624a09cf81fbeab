"""Views that importers of every format make: ranges of axes, channels last. In: values of a graph
being built. Out: values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.sizes import UndecidedError, surely_at_most


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
            x = n.op("gather", x, n.constant([*_known(backward)], "int64"), axis=axis)
    return x


def _stop(elements: Elements) -> int:
    """Where they end, if there are any."""
    if surely_at_most(elements.start, elements.stop):
        return elements.stop
    return max(elements.stop, elements.start)


def _known(elements: Elements) -> range:
    """Raises UndecidedError where only a run knows them."""
    if isinstance(elements, range):
        return elements
    raise UndecidedError(f"elements {elements.start}:{elements.stop}:{elements.step}, backward")


def expand_to(n: Assembler, x: str, extents: Sequence[int]) -> str:
    same = n.shape(x) == tuple(extents)
    return x if same else n.op("expand", x, shape=tuple(int(e) for e in extents))


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
