"""resize(x; out_shape, mode, coordinate, nearest_mode): interpolation along any dimensions.

Along a dimension with `extent` elements that gets `size`, output element i lies at
    asymmetric           i * extent / size
    half_pixel           (i + 1/2) * extent / size - 1/2
    pytorch_half_pixel   the same, but 0 where size is 1
    align_corners        i * (extent - 1) / (size - 1), 0 where size is 1
which is a ratio of integers, so that indices are exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autotune.errors import UndecidedError
from autotune.ops._common import Inputs, Output, arity, axes_of, integers, is_float, require, text
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Compute, Const, Index, IndexValue, Load, Value, clamp, fn, index
from autotune.sizes import any_size, ratio, surely_less
from autotune.types import Array, Attrs, TensorType

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class _Line(NamedTuple):
    """Position of output element i in x: (i * slope + offset) / divisor."""

    slope: int
    offset: int
    divisor: int


def _line(extent: int, size: int, coordinate: str) -> _Line:
    if any_size((extent, size)) and coordinate != "align_corners":
        if coordinate == "pytorch_half_pixel" and not surely_less(1, size):
            raise UndecidedError(f"whether {size} is 1")
        size, extent = ratio(size, extent).as_integer_ratio()
    elif size == 1 and coordinate not in ("half_pixel", "asymmetric"):
        return _Line(0, 0, 1)
    if coordinate == "asymmetric":
        return _Line(extent, 0, size)
    if coordinate == "align_corners":
        return _Line(extent - 1, 0, size - 1)
    return _Line(2 * extent, extent - size, 2 * size)


class Resize:
    """Nearest or (multi-)linear interpolation to `out_shape`."""

    name = "resize"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        (x,) = types
        shape = integers(attrs, "out_shape", None, len(x.shape))
        positive = all(surely_less(0, extent) for extent in (*shape, *x.shape))
        require(positive, f"resize: cannot make {shape} of {x}")
        mode, _, _ = _modes(attrs)
        require(mode == "nearest" or is_float(x.dtype), f"resize: linear needs floats, got {x}")
        return TensorType(dtype=x.dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        mode, coordinate, nearest = _modes(attrs)
        axes, dtype = axes_of(output[1].shape), output[1].dtype
        choices: list[list[tuple[Index, Value | None]]] = []
        for axis, extent in zip(axes, type_.shape, strict=True):
            if axis.extent == extent:
                choices.append([(index(axis.name), None)])
                continue
            line = _line(extent, axis.extent, coordinate)
            at = index(axis.name) * line.slope + line.offset
            if mode == "nearest":
                row = _rounded(at, line.divisor, nearest)
                choices.append([(clamp(row, 0, extent - 1), None)])
            else:
                choices.append(_neighbours(at, line.divisor, extent, dtype))
        return (Compute(output[0], dtype, axes, _mix(name, choices)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        mode, coordinate, nearest = _modes(attrs)
        for d, size in enumerate(integers(attrs, "out_shape", None, x.ndim)):
            extent = x.shape[d]
            if size == extent:
                continue
            line = _line(extent, size, coordinate)
            numerator = np.arange(size) * line.slope + line.offset
            if mode == "nearest":
                rows = _np_rounded(numerator / line.divisor, nearest)
                x = np.take(x, np.clip(rows, 0, extent - 1), axis=d)
                continue
            low = numerator // line.divisor
            share = (numerator - low * line.divisor) / line.divisor
            share = share.reshape(-1, *(1,) * (x.ndim - 1 - d)).astype(x.dtype)
            below = np.take(x, np.clip(low, 0, extent - 1), axis=d)
            above = np.take(x, np.clip(low + 1, 0, extent - 1), axis=d)
            x = below * (1 - share) + above * share
        return np.asarray(x)


def _modes(attrs: Attrs) -> tuple[str, str, str]:
    mode = text(attrs, "mode", "nearest", ("nearest", "linear"))
    coordinate = text(attrs, "coordinate", "half_pixel", _COORDINATES)
    return mode, coordinate, text(attrs, "nearest_mode", "round_prefer_floor", _NEAREST)


def _rounded(at: Index, divisor: int, nearest: str) -> Index:
    """at / divisor as an integer."""
    if nearest == "floor":
        return at // divisor
    if nearest == "ceil":
        return (at + (divisor - 1)) // divisor
    if nearest == "round_prefer_ceil":
        return (at * 2 + divisor) // (2 * divisor)
    return (at * 2 + (divisor - 1)) // (2 * divisor)


def _np_rounded(at: Array, nearest: str) -> Array:
    if nearest in ("floor", "round_prefer_ceil"):
        rounded = np.floor(at if nearest == "floor" else at + 0.5)
    else:
        rounded = np.ceil(at if nearest == "ceil" else at - 0.5)
    return np.asarray(rounded).astype(np.int64)


def _neighbours(
    at: Index, divisor: int, extent: int, dtype: str
) -> list[tuple[Index, Value | None]]:
    """The two elements around at / divisor and their weights."""
    low = at // divisor
    share = fn("mul", IndexValue(at % divisor, dtype), Const(1 / divisor, dtype))
    rest = fn("sub", Const(1.0, dtype), share)
    return [(clamp(low, 0, extent - 1), rest), (clamp(low + 1, 0, extent - 1), share)]


def _mix(name: str, choices: list[list[tuple[Index, Value | None]]]) -> Value:
    """Sum over every combination of neighbours of element times weights."""
    total: Value | None = None
    for combination in itertools.product(*choices):
        term: Value = Load(name, tuple(i for i, _ in combination))
        for _, weight in combination:
            term = term if weight is None else fn("mul", term, weight)
        total = term if total is None else fn("add", total, term)
    assert total is not None
    return total


OPS.add(Resize.name, Resize())
