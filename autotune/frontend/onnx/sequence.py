"""ONNX importers: sequences of tensors, and optional values. In: nodes. Out: a sequence is the
names of its values, kept beside the graph: nothing of it is left for a run.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import positive_axis, select_ranges

READERS = frozenset(
    (
        "ConcatFromSequence", "Identity", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceErase", "SequenceInsert", "SequenceLength",
    )
)  # fmt: skip
"""Operators that take a sequence."""


@importer("SequenceConstruct")
def construct(n: NodeContext) -> str:
    return n.builder.sequence(n.rest())


@importer("SequenceEmpty")
def empty(n: NodeContext) -> str:
    n.ignore("dtype")
    return n.builder.sequence(())


@importer("SplitToSequence")
def split(n: NodeContext) -> str:
    """Parts of sizes, or of one size and what is left; single elements where none is given."""
    x = n.input(0)
    axis, keepdims = positive_axis(n.integer("axis", 0), n.rank(x)), n.integer("keepdims", 1)
    shape, given = n.shape(x), n.parameter(1)
    extent = shape[axis]
    if given is None:
        ends = np.arange(extent) + 1
    elif given.ndim == 0:
        ends = np.minimum(np.arange(0, extent, given.item()) + given.item(), extent)
    else:
        ends = np.cumsum(given)
    if (ends[-1] if ends.size else 0) != extent or (np.diff(ends) < 0).any():
        raise ModelError(f"sizes {given} do not split an axis of {extent}")
    starts = [0, *ends[:-1]]
    parts = [
        select_ranges(n, x, {axis: range(int(s), int(e))})
        for s, e in zip(starts, ends, strict=False)
    ]
    if given is None and not keepdims:
        parts = [n.reshape(p, (*shape[:axis], *shape[axis + 1 :])) for p in parts]
    return n.builder.sequence(parts)


@importer("ConcatFromSequence")
def concat(n: NodeContext) -> str:
    values, axis = _values(n), n.integer("axis", 0)
    if not values:
        raise ModelError("the sequence is empty: there is nothing to join")
    rank = n.rank(values[0])
    if n.integer("new_axis", 0):
        at = positive_axis(axis, rank + 1)
        values = [n.reshape(v, (*n.shape(v)[:at], 1, *n.shape(v)[at:])) for v in values]
    else:
        at = positive_axis(axis, rank)
    return values[0] if len(values) == 1 else n.op("concat", *values, axis=at)


@importer("SequenceAt")
def at(n: NodeContext) -> str:
    values = _values(n)
    return values[_place(n, 1, len(values))]


@importer("SequenceInsert")
def insert(n: NodeContext) -> str:
    """In front of a position; behind all where none is given."""
    values = _values(n)
    place = len(values) if n.optional(2) is None else _place(n, 2, len(values) + 1, len(values))
    return n.builder.sequence([*values[:place], n.input(1), *values[place:]])


@importer("SequenceErase")
def erase(n: NodeContext) -> str:
    values = _values(n)
    place = len(values) - 1 if n.optional(1) is None else _place(n, 1, len(values))
    return n.builder.sequence([v for i, v in enumerate(values) if i != place])


@importer("SequenceLength")
def length(n: NodeContext) -> str:
    return n.constant(len(_values(n)), "int64")


@importer("OptionalHasElement")
def has_element(n: NodeContext) -> str:
    return n.constant(n.optional(0) is not None)


@importer("OptionalGetElement")
def get_element(n: NodeContext) -> str:
    return n.input(0)


def _values(n: NodeContext) -> list[str]:
    sequence = n.builder.sequences.get(n.input(0))
    if sequence is None:
        raise ModelError(f"input 0 ({n.inputs[0]!r}) is a tensor, expected a sequence")
    return list(sequence)


def _place(n: NodeContext, position: int, count: int, end: int | None = None) -> int:
    """A constant position among `count`; negative ones count back from `end`."""
    place = n.required_ints(position)[0]
    place += (count if end is None else end) * (place < 0)
    if not 0 <= place < count:
        raise ModelError(f"position {place} is outside a sequence of {count} values")
    return place
