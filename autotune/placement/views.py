"""Strides of views. In: where a value lies, and a view of it. Out: where the view lies, if strides
can say it.

A stride of a dimension of extent 1 without halo means nothing; it is always written as the dense
one, so that equal layouts are equal values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from autotune.placement.types import Placement
from autotune.shapes import factor_groups
from autotune.types import Layout, dense_strides

Shape = tuple[int, ...]


def transposed(inner: Placement, shape: Shape, perm: Sequence[int]) -> Placement:
    """The place of transpose(x, perm), for x of `shape` at `inner`."""
    layout = inner.layout
    return _at(
        inner,
        inner.offset,
        tuple(shape[p] for p in perm),
        [layout.strides[p] for p in perm],
        [layout.halo[p] for p in perm],
    )


def untransposed(outer: Placement, shape: Shape, perm: Sequence[int]) -> Placement:
    """The place of x, of `shape`, where transpose(x, perm) lies at `outer`."""
    back = [list(perm).index(d) for d in range(len(shape))]
    layout = outer.layout
    strides = [layout.strides[b] for b in back]
    return _at(outer, outer.offset, shape, strides, [layout.halo[b] for b in back])


def sliced(
    inner: Placement, shape: Shape, result: Shape, starts: Sequence[int], steps: Sequence[int]
) -> Placement:
    """The place of a slice; a dimension taken whole keeps its halo."""
    layout = inner.layout
    offset = inner.offset + sum(b * s for b, s in zip(starts, layout.strides, strict=True))
    halo = [h if e == r else (0, 0) for h, e, r in zip(layout.halo, shape, result, strict=True)]
    strides = [s * k for s, k in zip(layout.strides, steps, strict=True)]
    return _at(inner, offset, result, strides, halo)


def concat_part(outer: Placement, shape: Shape, axis: int, start: int) -> Placement:
    """The place of a concat's operand that begins at `start` along `axis`."""
    layout = outer.layout
    halo = [(0, 0) if d == axis else h for d, h in enumerate(layout.halo)]
    offset = outer.offset + start * layout.strides[axis]
    return _at(outer, offset, shape, layout.strides, halo)


def reshaped(inner: Placement, shape: Shape, result: Shape) -> Placement | None:
    """The place of reshape(x, result); None where merged dimensions do not lie side by side."""
    if math.prod(shape) == 0:
        return Placement(storage=inner.storage, offset=inner.offset, layout=Layout.dense(result))
    strides, halo = [0] * len(result), [(0, 0)] * len(result)
    layout = inner.layout
    for ins, outs in factor_groups(shape, result):
        for left, right in itertools.pairwise(ins):
            if layout.strides[left] != layout.strides[right] * shape[right]:
                return None
        if len(ins) == len(outs) == 1:
            halo[outs[0]] = layout.halo[ins[0]]
        step = layout.strides[ins[-1]]
        for out in reversed(outs):
            strides[out] = step
            step *= result[out]
    return _at(inner, inner.offset, result, strides, halo)


def canonical_layout(shape: Shape, layout: Layout) -> Layout:
    """The same layout with meaningless strides (extent 1, no halo) as in a dense tensor."""
    if math.prod(shape) == 0:
        return Layout(strides=dense_strides(shape), halo=layout.halo)
    strides: list[int] = []
    step = 1
    dims = list(zip(shape, layout.strides, layout.halo, strict=True))
    for extent, stride, halo in reversed(dims):
        strides.append(step if extent == 1 and not any(halo) else stride)
        step = strides[-1] * extent
    return Layout(strides=tuple(reversed(strides)), halo=layout.halo)


def _at(
    base: Placement,
    offset: int,
    shape: Shape,
    strides: Sequence[int],
    halo: Sequence[tuple[int, int]],
) -> Placement:
    layout = canonical_layout(shape, Layout(strides=tuple(strides), halo=tuple(halo)))
    return Placement(storage=base.storage, offset=offset, layout=layout)
