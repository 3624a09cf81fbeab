"""Operators whose results have as many elements as a run finds. In: arrays. Out: arrays.

What is found is written by native code into memory that has room for all, and cut off behind it.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np

from autotune.codegen.base import Library
from autotune.codegen.llvm.backend import load_text
from autotune.codegen.llvm.counting import LANES, counting_text
from autotune.errors import ModelError
from autotune.memory import address
from autotune.target import Target
from autotune.types import Array

_WORD, _POINTER = ctypes.c_int64, ctypes.c_void_p
_POSITIONS = ctypes.CFUNCTYPE(_WORD, _POINTER, _WORD, _POINTER)
_SUPPRESS = ctypes.CFUNCTYPE(
    _WORD, *[_POINTER] * 3, _WORD, ctypes.c_float, _WORD, _POINTER, _WORD, _POINTER
)
_FIRST = 2
"""Times as many boxes of a class as may stay, which are looked at first, by score (chosen)."""
_ELEMENTS = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """Options of `suppressed`."""

    most: int
    """Boxes of a class that stay, at most."""
    overlap: float = 0.0
    """What two boxes share, as a part of what they cover: less than all that stay."""
    score: float | None = None
    """What a score has to be more than."""
    centered: bool = False
    """Whether boxes are centers and sizes instead of corners."""


class Counting:
    """The operators on one target. Safe to call from several threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._addresses: dict[str, int] = {}
        """Those of functions that were called."""

    def _address(self, function: str) -> int:
        if function not in self._addresses:
            self._addresses[function] = _library(self._target).address(function)
        return self._addresses[function]

    def places(self, x: Array) -> Array:
        """Places in the flattened array of what is not 0: int64 [found]."""
        flat = np.require(x.reshape(-1), requirements=["C", "A"])
        kind = _ELEMENTS.get(flat.dtype.name)
        if kind is None and flat.dtype.kind not in "bui":
            flat = flat != flat.dtype.type(0)
        kind = kind or f"i{8 * flat.dtype.itemsize}"
        function = _POSITIONS(self._address(f"positions_{kind}"))
        out = np.empty(flat.size + 1, np.int64)
        return out[: function(address(flat), flat.size, address(out))]

    def non_zero(self, x: Array) -> Array:
        """Coordinates of what is not 0: int64 [rank, found]."""
        places = self.places(x)
        if x.ndim == 1:
            return places[None]
        return np.stack(np.unravel_index(places, x.shape)).astype(np.int64, copy=False)

    def compressed(self, x: Array, chosen: Array, axis: int | None) -> Array:
        """The slices along the axis, or of the flattened array the elements, that are chosen.
        Raises ModelError where more are chosen than there are."""
        x = x.reshape(-1) if axis is None else x
        at = axis or 0
        places = self.places(chosen)
        if places.size and places[-1] >= x.shape[at]:
            raise ModelError(f"element {places[-1]} is chosen out of {x.shape[at]}")
        return x.take(places, axis=at)

    def suppressed(self, boxes: Array, scores: Array, how: Suppression) -> Array:
        """Boxes that stay: int64 [found, 3] of batch, class and box, those of a class by falling
        score. boxes [batch, n, 4], scores [batch, classes, n]."""
        batch, _, count = scores.shape
        if boxes.shape != (batch, count, 4):
            raise ModelError(f"boxes {list(boxes.shape)} do not fit scores {list(scores.shape)}")
        likely = _FIRST * how.most
        if 0 < 2 * likely <= count:
            ahead = np.partition(scores, count - likely, axis=2)[..., count - likely, None]
            found, done = self._suppressed(boxes, scores, how, ahead)
            if done:
                return found
        return self._suppressed(boxes, scores, how, None)[0]

    def _suppressed(
        self, boxes: Array, scores: Array, how: Suppression, ahead: Array | None
    ) -> tuple[Array, bool]:
        """See `suppressed`; of boxes whose scores are at least those of their class in `ahead`,
        where it is given, and whether the others make no difference."""
        _, classes, count = scores.shape
        flat, counted = scores.reshape(-1), np.ones(scores.shape, bool)
        if how.score is not None:
            counted = scores > np.float32(how.score)
        few = counted if ahead is None else counted & (scores >= ahead)
        whole = ahead is None and how.score is None
        found = np.arange(flat.size) if whole else self.places(few)
        group, box = np.divmod(found, count)
        order = _by_score(group, flat[found])
        group, box = (np.ascontiguousarray(a[order], np.int64) for a in (group, box))
        rows = box + group // max(classes, 1) * count
        room = -(-max(1, min(how.most, count)) // LANES) * LANES
        corners, kept = _corners(boxes, how.centered), np.zeros((5, room), np.float32)
        out = np.empty(len(box) + 1, np.int64)
        stayed = _SUPPRESS(self._address("suppress"))(
            address(corners), address(group), address(rows), len(box), how.overlap,
            how.most, address(kept), room, address(out),
        )  # fmt: skip
        chosen = out[:stayed]
        done = True
        if ahead is not None:
            full = np.bincount(group[chosen], minlength=scores.size // count) == how.most
            left = (counted.sum(2) > few.sum(2)).reshape(-1)
            done = not bool((left & ~full).any())
        made = np.empty((len(chosen), 3), np.int64)
        np.divmod(group[chosen], max(classes, 1), made[:, 0], made[:, 1])
        made[:, 2] = box[chosen]
        return made, done


def unique(x: Array, axis: int | None, ordered: bool) -> tuple[Array, Array, Array, Array]:
    """(what differs, sorted or in the order of appearance, where each is first, which of these
    each one is, how often each is there), along an axis or of the flattened array."""
    narrow = x.dtype if x.dtype.kind == "V" else None
    given = x.astype(np.float32) if narrow is not None else x
    made = np.unique(given, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    values, first, inverse, counts = (np.asarray(a) for a in made)
    inverse = inverse.reshape(-1)
    if not ordered:
        order = np.argsort(first, kind="stable")
        values = values.take(order, axis=axis or 0)
        first, counts = first[order], counts[order]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        inverse = back[inverse]
    values = values if narrow is None else values.astype(narrow)
    return values, *(a.astype(np.int64, copy=False) for a in (first, inverse, counts))  # type: ignore[return-value]


def _by_score(group: Array, scores: Array) -> Array:
    """The order by group, then by falling score, then by place."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    keys = (group << 32) | (0x7FFFFFFF - rising.astype(np.int64))
    order = np.argsort(keys)
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():  # the fast sort leaves equal ones in any order
        tied = np.append(same, False) | np.insert(same, 0, False)
        order[tied] = order[tied][np.lexsort((order[tied], ordered[tied]))]
    return order


def _corners(boxes: Array, centered: bool) -> Array:
    """Least and greatest coordinates of each box, [., 4]."""
    sides = np.ascontiguousarray(boxes, np.float32).reshape(-1, 4)
    out = np.empty_like(sides)
    # By columns: numpy goes through rows of two numbers ten times as slowly.
    for low, high in ((0, 2), (1, 3)):
        one, other = sides[:, low], sides[:, high]
        if centered:
            half = other / 2
            np.subtract(one, half, out=out[:, low])
            np.add(one, half, out=out[:, high])
        else:
            np.minimum(one, other, out=out[:, low])
            np.maximum(one, other, out=out[:, high])
    return out


@functools.lru_cache(maxsize=4)
def _library(target: Target) -> Library:
    return load_text(counting_text(), target)
