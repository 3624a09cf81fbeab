"""Views that importers of every format make: ranges of axes, channels last. In: values of a graph
being built. Out: values.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler


def positive_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ModelError where there is no such axis."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


def select_ranges(n: Assembler, x: str, ranges: dict[int, range]) -> str:
    """The elements of some axes that ranges select: one slice, and a gather per backward range."""
    forward = {a: r for a, r in ranges.items() if r.step > 0}
    extents = n.shape(x)
    full = [forward.get(a, range(e)) for a, e in enumerate(extents)]
    if any(r != range(e) for r, e in zip(full, extents, strict=True)):
        x = n.op(
            "slice", x, starts=tuple(r.start for r in full),
            stops=tuple(max(r.stop, r.start) for r in full), steps=tuple(r.step for r in full),
        )  # fmt: skip
    for axis, backward in ranges.items():
        if backward.step < 0:
            x = n.op("gather", x, n.constant(list(backward), "int64"), axis=axis)
    return x


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
