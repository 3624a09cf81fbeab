"""A graph being built by an importer, of whatever format. In: ops and their operands. Out: values,
folded where every operand is constant.

What importers of several formats share takes an `Assembler`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from autotune.errors import ModelError, UndecidedError
from autotune.graph.build import GraphBuilder
from autotune.ops import OPS
from autotune.shapes import as_array
from autotune.sizes import any_size, is_size
from autotune.types import Array, Attr

FOLD_ELEMENTS = 1 << 16
"""Constants are folded freely up to this size; above it, only where the result does not grow."""

MOST_MADE = 1 << 28
"""Elements of a constant that an importer makes out of numbers in the file: beyond are slips."""

_KEPT = ("to_float32", "to_float64", "to_int32", "to_int64")
"""Ops whose result is the whole number that they are given."""


class Assembler:
    """Adds ops to a graph, and says what is known of its values."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def known(self, value: str) -> Array | None:
        """The array of a value that is constant, else None."""
        return self.builder.constants.get(value)

    def evaluated(self, value: str) -> Array | None:
        """As `known`, also of what is too large to be folded; slower."""
        array = self.known(value)
        return self.builder.evaluated(value) if array is None else array

    def amount(self, value: str) -> int | None:
        """The size that a value of one element is, as a number of whatever type; None where it is
        none."""
        array = self.known(value)
        if array is not None:
            return array.item() if array.size == 1 and is_size(array.item()) else None
        made = self.builder.maker(value)
        if made is None or made.op not in ("scalar", "reshape", *_KEPT):
            return None
        if made.op == "scalar":
            found = made.attributes["value"]
            return cast(int, found) if is_size(found) else None
        return self.amount(made.inputs[0])

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.shape(value)

    def rank(self, value: str) -> int:
        return len(self.builder.shape(value))

    def dtype(self, value: str) -> str:
        return self.builder.dtype(value)

    def constant(self, data: Any, dtype: str | None = None) -> str:
        return self.builder.constant(as_array(data, dtype))

    def made(self, *extents: int) -> None:
        """Raise ModelError where a constant of these extents is more than an importer makes."""
        if math.prod(max(1, e) for e in extents) > MOST_MADE:
            raise ModelError(
                f"it stands for a constant of {'x'.join(map(str, extents))} elements; up to "
                f"{MOST_MADE} are made: check its attributes and its constant inputs"
            )

    def op(self, op: str, *values: str, **attrs: Attr) -> str:
        """Apply an internal op: folded where every operand is constant, its size-1 constants as
        `scalar` nodes where it is elementwise."""
        operands = list(values)
        if operands and all(v in self.builder.constants for v in operands):
            folded = self._fold(op, operands, attrs)
            if folded is not None:
                return folded
        operands = [self._held(v, of=OPS.get(op).kind) for v in operands]
        if OPS.get(op).kind != "elementwise" or not operands:
            return self.builder.op(op, *operands, **attrs)
        return self._elementwise(op, operands, attrs)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        return (
            value
            if self.shape(value) == tuple(shape)
            else self.op("reshape", value, shape=tuple(shape))
        )

    def transpose(self, value: str, perm: Sequence[int]) -> str:
        if tuple(perm) == tuple(range(len(perm))):
            return value
        return self.op("transpose", value, perm=tuple(perm))

    def cast(self, value: str, dtype: str) -> str:
        return value if self.dtype(value) == dtype else self.op(f"to_{dtype}", value)

    def _fold(self, op: str, values: Sequence[str], attrs: Mapping[str, Attr]) -> str | None:
        types = [self.builder.types[v] for v in values]
        result = OPS.get(op).infer(types, attrs)
        if any_size(result.shape):
            return None
        if result.size > max(FOLD_ELEMENTS, *(t.size for t in types)):
            return None
        arrays = [self.builder.constants[v] for v in values]
        try:
            with np.errstate(all="ignore"):  # overflow and nan are IEEE's, as in compiled code
                array = np.asarray(OPS.get(op).reference(arrays, attrs))
        except (TypeError, UndecidedError):
            if any(array.dtype == object for array in arrays):
                return None  # of sizes: a run computes it
            raise
        return self.builder.constant(as_array(array, result.dtype))

    def _held(self, value: str, of: str) -> str:
        """An operand of an op that a run can have; one number of an elementwise op stays a
        scalar."""
        array = self.known(value)
        one = of == "elementwise" and array is not None and array.size == 1
        return value if one else self.filled(value)

    def filled(self, value: str) -> str:
        """A constant some of whose numbers are sizes as a tensor that a run fills; any other value
        as it is."""
        array = self.known(value)
        if array is None or array.dtype != object:
            return value
        numbers = [
            self.builder.op("expand", self.scalar(number, "int64"), shape=(1,))
            for number in array.ravel()
        ]
        whole = numbers[0] if len(numbers) == 1 else self.builder.op("concat", *numbers, axis=0)
        return self.reshape(whole, array.shape)

    def _elementwise(self, op: str, values: list[str], attrs: Mapping[str, Attr]) -> str:
        types = [self.builder.types[v] for v in values]
        shape = OPS.get(op).infer(types, attrs).shape
        for i, value in enumerate(values):
            array = self.known(value)
            if array is not None and array.size == 1:
                values[i] = self.scalar(array.item(), self.dtype(value))
        # A scalar has rank 0, the constant it stands for may have had the largest rank.
        return self.reshape(self.builder.op(op, *values, **attrs), shape)

    def scalar(self, value: bool | int | float, dtype: str) -> str:
        """A size-1 constant that the compiler sees."""
        return self.builder.op("scalar", value=value, dtype=dtype)

    def like(self, value: bool | int | float, other: str) -> str:
        """A number as a constant of another value's element type."""
        return self.constant(value, self.dtype(other))
