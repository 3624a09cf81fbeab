"""Nodes that give as much as their values say: NonZero, Compress, Unique, NonMaxSuppression, and
ranges, fills and repeats of lengths that values are. In: a node, and what it takes. Out: what it
gives, found by `autotune.runtime.counting` where elements are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.errors import ModelError
from autotune.fallback.parts import Values
from autotune.fallback.stages import Stage
from autotune.runtime.counting import Counting, Suppression, unique
from autotune.types import Array

_Given = Sequence[Any]
_Options = Mapping[str, Any]


class CountedPart:
    """One such node."""

    own = True
    compiled = 0
    deciding: frozenset[str] = frozenset()

    def __init__(
        self, stage: Stage, tensors: Mapping[str, onnx.TensorProto], counting: Counting
    ) -> None:
        """`tensors`: the model's constants."""
        (self._node,) = stage.nodes
        self._counting = counting
        self._options = {a.name: helper.get_attribute_value(a) for a in self._node.attribute}
        self._constants = {
            name: numpy_helper.to_array(tensors[name])
            for name in self._node.input
            if name in tensors
        }

    def run(self, values: Values) -> dict[str, Any]:
        """Outputs by name. Raises ModelError where the inputs do not fit together."""
        node, found = self._node, {**self._constants, **values}
        given = [found[name] if name else None for name in node.input]
        try:
            made = OPERATORS[node.op_type](self._counting, given, self._options)
        except (ModelError, ValueError, IndexError) as error:
            raise ModelError(f"operator {node.op_type} (node {node.name!r}): {error}") from None
        pairs = zip(node.output, made, strict=False)
        return {name: value for name, value in pairs if name}

    def close(self) -> None:
        """It has no memory of its own."""


def _non_zero(counting: Counting, given: _Given, _: _Options) -> tuple[Array, ...]:
    return (counting.non_zero(np.atleast_1d(given[0])),)


def _compress(counting: Counting, given: _Given, options: _Options) -> tuple[Array, ...]:
    axis = options.get("axis")
    return (counting.compressed(given[0], given[1], None if axis is None else int(axis)),)


def _unique(_: Counting, given: _Given, options: _Options) -> tuple[Array, ...]:
    axis = options.get("axis")
    return unique(given[0], None if axis is None else int(axis), bool(options.get("sorted", 1)))


def _suppress(counting: Counting, given: _Given, options: _Options) -> tuple[Array, ...]:
    boxes, scores, most, overlap, score = [*given, None, None, None][:5]
    how = Suppression(
        most=0 if most is None else int(_item(most)),
        overlap=0.0 if overlap is None else float(_item(overlap)),
        score=None if score is None else float(_item(score)),
        centered=bool(options.get("center_point_box", 0)),
    )
    return (counting.suppressed(boxes, scores, how),)


def _range(_: Counting, given: _Given, __: _Options) -> tuple[Array, ...]:
    start, limit, step = (np.asarray(value).reshape(-1)[0] for value in given)
    return (np.arange(start, limit, step, dtype=start.dtype),)


def _filled(_: Counting, given: _Given, options: _Options) -> tuple[Array, ...]:
    value = options.get("value")
    number = np.float32(0) if value is None else numpy_helper.to_array(value).reshape(-1)[0]
    return (np.full(tuple(map(int, given[0])), number),)


def _expanded(_: Counting, given: _Given, __: _Options) -> tuple[Array, ...]:
    x, shape = given
    whole = np.broadcast_shapes(x.shape, tuple(map(int, shape)))
    return (np.ascontiguousarray(np.broadcast_to(x, whole)),)


def _repeated(_: Counting, given: _Given, __: _Options) -> tuple[Array, ...]:
    return (np.tile(given[0], tuple(map(int, given[1]))),)


def _item(value: Any) -> Any:
    return np.asarray(value).reshape(-1)[0]


OPERATORS: Mapping[str, Callable[[Counting, _Given, _Options], tuple[Array, ...]]] = {
    "NonZero": _non_zero,
    "Compress": _compress,
    "Unique": _unique,
    "NonMaxSuppression": _suppress,
    "Range": _range,
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "Tile": _repeated,
}
"""Operators by name -> what runs one, given its inputs (None: left out) and attributes."""
