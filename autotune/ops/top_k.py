"""top_k(x; count): the largest elements of every row, in order, by a network of exchanges.

Rows are cut into columns of a power of two, side by side, which are sorted at once. Then columns
are merged in pairs, and no more of them is kept than `count` needs. What is exchanged does not
depend on the data: a pass over the elements compares each with those a few places away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.ops._common import Inputs, Output, arity, const, integer, require
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Axis, Bound, Compute, Index, Load, Select, Value, fn, index
from autotune.types import Array, Attrs, TensorType, lowest

_COLUMNS = 8
"""Columns that are sorted side by side, if there are as many."""
_TOGETHER = 2
"""Exchanges of one pass."""


@dataclass(frozen=True, slots=True)
class ExchangePass:
    """Exchanges of elements some rows of columns apart, then half as many, and so on.

    start: `near`, or where the first exchange meets the end of a sorted sequence with the start
    of the next: `turned`, in the same column, or `merged`, of two columns.
    """

    start: str
    distance: int
    """Rows between the elements of the last exchange."""
    columns: int
    """Once the pass is done."""
    exchanges: int
    drops: bool
    """Whether the smaller element of the first exchange is left out."""
    size: int
    """Elements afterwards."""

    @property
    def bits(self) -> int:
        """Parts of 2, 4, ... runs that a place belongs to: one half or the other by exchange."""
        return self.exchanges - self.drops

    @property
    def run(self) -> int:
        """Elements side by side that are exchanged with others side by side, in their order."""
        return self.columns * (self.distance if self.start == "near" else 1)


def passes(extent: int, count: int) -> tuple[ExchangePass, ...]:
    """What makes the `count` largest of `extent` elements, padded to a power of two, the first."""
    size, kept = _power(extent), _power(count)
    height = max(1, min(kept, size // _COLUMNS))
    columns, sorted_, out = size // height, 1, list[ExchangePass]()
    while sorted_ < height:
        out += _phase("turned", sorted_, columns, size)
        sorted_ *= 2
    while columns > 1:
        columns //= 2
        if height == kept:
            size //= 2
        out += _phase("merged", height, columns, size)
        height = size // columns
    return tuple(out)


def padded(extent: int) -> int:
    """Elements of a row while it is sorted."""
    return _power(extent)


def _phase(start: str, half: int, columns: int, size: int) -> list[ExchangePass]:
    """Two sorted sequences of `half` elements become one, in passes of a few exchanges each."""
    drops = start == "merged" and half * columns == size
    distances = [half >> n for n in range(half.bit_length())]
    out = []
    for first in range(0, len(distances), _TOGETHER):
        here = distances[first : first + _TOGETHER]
        begins = not first
        kind = start if begins else "near"
        out.append(ExchangePass(kind, here[-1], columns, len(here), drops and begins, size))
    return out


def _power(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


class TopK:
    """The last dimension's `count` largest elements, descending; those of a row differ, or which
    of equal ones comes first does not matter."""

    name = "top_k"
    kind: OpKind = "sort"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        x, count = types[0], integer(attrs, "count")
        require(len(x.shape) == 2, f"top_k: input must have two dimensions, got {x}")
        require(0 < count <= x.shape[1], f"top_k: there are no {count} in {x}")
        return TensorType(dtype=x.dtype, shape=(x.shape[0], count))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (source, type_), (out, result) = inputs[0], output
        extent, stages, dtype = type_.shape[1], list[Compute](), type_.dtype

        def stage(name: str, size: int, value: Value) -> None:
            axes = Axis("d0", type_.shape[0]), Axis("d1", size)
            stages.append(Compute(name, dtype, axes, value))

        if padded(extent) > extent:
            place = index("d1")
            body = Select(
                (Bound(place, 0, extent),), _load(source, place), const(lowest(dtype), dtype)
            )
            stage(f"{out}.padded", padded(extent), body)
            source = f"{out}.padded"
        for number, pass_ in enumerate(passes(extent, result.shape[1])):
            stage(f"{out}.pass{number}", pass_.size, _Exchange(source, pass_).value())
            source = f"{out}.pass{number}"
        stage(out, result.shape[1], _load(source, index("d1")))
        return tuple(stages)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        ordered = np.sort(arrays[0], axis=1)[:, ::-1]
        return np.ascontiguousarray(ordered[:, : integer(attrs, "count")])


def _load(tensor: str, place: Index) -> Load:
    return Load(tensor, (index("d0"), place))


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The value of an element after a pass. Its place is, from the outside in: a group, a bit of
    each exchange, a row of the distance, a column."""

    source: str
    pass_: ExchangePass

    def value(self) -> Value:
        return self._after(self.pass_.exchanges, ())

    def _after(self, exchanges: int, known: tuple[int, ...]) -> Value:
        """After some exchanges, where the bits of the later ones are known."""
        if not exchanges:
            return _load(self.source, self._place(known))
        pair = [self._after(exchanges - 1, (bit, *known)) for bit in (0, 1)]
        larger, smaller = fn("max", *pair), fn("min", *pair)
        p, own = self.pass_, len(known)
        if p.drops and own == p.exchanges - 1:
            return larger
        bit = index("d1") // (p.distance * p.columns << own) % 2
        return Select((Bound(bit, 0, 1),), larger, smaller)

    def _place(self, bits: tuple[int, ...]) -> Index:
        """Where an element was before the pass."""
        p, place = self.pass_, index("d1")
        first, *others = bits
        step = p.distance * p.columns
        rest = sum(bit * p.distance << n for n, bit in enumerate(reversed(others)))
        if p.start == "near":
            block = step << len(bits)
            inside = first * (step << len(others)) + rest * p.columns
            return place // block * block + place % step + inside
        row, column = place // p.columns % p.distance + rest, place % p.columns
        half = p.distance << len(others)
        row = row * -1 + (half - 1) if first else row
        if p.start == "merged":
            return row * (2 * p.columns) + column + first * p.columns
        block = 2 * half
        return place // (block * p.columns) * (block * p.columns) + (
            (row + first * half) * p.columns + column
        )


OPS.add(TopK.name, TopK())
