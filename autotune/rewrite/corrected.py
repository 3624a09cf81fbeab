"""Rewrites that are right on a box of the result alone (Wang et al., PET, OSDI 2021): the right
side there, and around it what the left side says, of as little as that needs.

In: a rewrite with a box, a number for every symbol. Out: the right side that is right everywhere.
The rest is cut into strips, two along each dimension at most; each is a part of the left side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import ModelError
from autotune.rewrite import expressions
from autotune.rewrite.regions import Region, Regions, applied, whole
from autotune.rewrite.rule import Application, Rewrite


def corrected(rewrite: Rewrite, symbols: Mapping[str, Any]) -> tuple[Application | str, ...]:
    """The right side, corrected. Raises ModelError where the box is none of the result."""
    regions = regions_of(rewrite, symbols)
    (left,), (right,) = rewrite.left, rewrite.right
    box = box_of(rewrite, symbols)
    everything = whole(regions.shape(left))
    if len(box) != len(everything) or regions.shape(right) != regions.shape(left):
        raise ModelError(f"{rewrite.name}: the box is none of the result")
    if any(not 0 <= a < b <= e for (a, b), (_, e) in zip(box, everything, strict=True)):
        raise ModelError(f"{rewrite.name}: the box is empty here")
    made = regions.part(right, box)
    for axis in reversed(range(len(box))):
        (first, last), (_, extent) = box[axis], everything[axis]
        # Strips of later dimensions lie beside the box already.
        strips = [
            regions.part(left, (*box[:axis], (start, stop), *everything[axis + 1 :]))
            if start < stop
            else None
            for start, stop in ((0, first), (last, extent))
        ]
        parts = [p for p in (strips[0], made, strips[1]) if p is not None]
        made = applied("concat", parts, axis=axis) if len(parts) > 1 else made
    return (made,)


def regions_of(rewrite: Rewrite, symbols: Mapping[str, Any]) -> Regions:
    """Parts of a rewrite's terms, with a number for every symbol."""
    shapes = {v.name: expressions.shape(v.shape, symbols) for v in rewrite.values}
    return Regions(shapes, symbols, dict(rewrite.lets))


def box_of(rewrite: Rewrite, symbols: Mapping[str, Any]) -> Region:
    """Where the right side is said to be right. Raises ModelError."""
    assert rewrite.box is not None
    try:
        starts, stops = (expressions.value(text, symbols) for text in rewrite.box)
        return tuple(zip(starts, stops, strict=True))
    except expressions.NOTHING as error:
        raise ModelError(f"{rewrite.name}: there is no box: {error}") from None
