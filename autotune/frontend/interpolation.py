"""Images and other tensors resized along axes. In: a value, the extents of its axes, a method.
Out: one `resize` op where there is one, else a gather or a product with a matrix per axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autotune.errors import UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.frontend.open_interpolation import OpenAxis, mixed_on_axis, nearest_on_axis
from autotune.frontend.views import from_nhwc, to_nhwc
from autotune.sizes import any_size, ratio, surely_less
from autotune.types import Array

RESIZE_OP_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


LARGEST_DIVISOR = 1 << 10
"""The divisor of a factor as a ratio, in which places on axes of open extents are counted."""
LONG = 64
"""Elements of an axis to each that counts from which on a product with a matrix, mostly zeros,
takes longer than gathers (assumed: a gather takes as long as some 30 multiply-adds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to compute elements between two samples."""

    mode: str
    coordinate: str
    nearest: str = "floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    beyond: float | None = None
    """What lies outside the data, where it does not repeat the border's elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One axis: extents before and after, and the factor, which need not be their ratio (nan:
    their ratio, which only a run knows)."""

    before: int
    after: int
    factor: float
    cut: tuple[float, float] = (0.0, 1.0)
    """What is resized, in parts of the axis."""

    @property
    def is_open(self) -> bool:
        """Whether an extent is known only when a model runs."""
        return any_size((self.before, self.after))

    @property
    def exact(self) -> bool:
        if math.isnan(self.factor):
            return False
        if self.is_open:
            return self.factor == growth(self.before, self.after)
        return bool(np.float32(self.factor) == np.float32(self.after / self.before))


def growth(before: int, after: int) -> float:
    """after / before; nan where only a run knows it."""
    if not any_size((before, after)):
        return after / before
    try:
        return float(ratio(after, before))
    except UndecidedError:
        return math.nan


def resized(n: Assembler, x: str, scalings: dict[int, Scaling], method: Method) -> str:
    """The value with some axes resized; integers are mixed as floats, and cut off to integers."""
    kind = n.dtype(x)
    if method.mode != "nearest" and not kind.startswith("float"):
        return n.cast(_resized(n, n.cast(x, "float32"), scalings, method), kind)
    return _resized(n, x, scalings, method)


def _resized(n: Assembler, x: str, scalings: dict[int, Scaling], method: Method) -> str:
    if n.rank(x) == 3 and _is_resize_op(4, {a + 1: s for a, s in scalings.items()}, method):
        return _resized_lines(n, x, scalings, method)
    if _is_resize_op(n.rank(x), scalings, method):
        image = to_nhwc(n, x)
        extents = list(n.shape(image))
        for axis, scaling in scalings.items():
            extents[axis - 1] = scaling.after
        y = n.op(
            "resize", image, out_shape=tuple(extents), mode=method.mode,
            coordinate=method.coordinate, nearest_mode=method.nearest,
        )  # fmt: skip
        return from_nhwc(n, y, 4)
    if any(s.is_open for s in scalings.values()):
        return _resized_in_the_run(n, x, scalings, method)
    for axis, scaling in scalings.items():
        x = _resize_axis(n, x, axis, scaling, method)
    return x


def _resized_lines(n: Assembler, x: str, scalings: dict[int, Scaling], method: Method) -> str:
    """[batch, channels, length] as images of one row."""
    batch, channels, length = n.shape(x)
    image = n.reshape(x, (batch, channels, 1, length))
    y = _resized(n, image, {a + 1: s for a, s in scalings.items()}, method)
    return n.reshape(y, (batch, channels, n.shape(y)[3]))


def _is_resize_op(rank: int, scalings: dict[int, Scaling], method: Method) -> bool:
    return (
        rank == 4
        and bool(scalings)
        and set(scalings) <= {2, 3}
        and all(s.exact and _is_op_line(s, method.coordinate) for s in scalings.values())
        and method.mode in ("nearest", "linear")
        and method.coordinate in RESIZE_OP_COORDINATES
        and not method.exclude_outside
        and not method.antialias
    )


def _is_op_line(scaling: Scaling, coordinate: str) -> bool:
    """Whether the op has a number for how far apart an axis's places lie."""
    if not scaling.is_open:
        return True
    single = coordinate == "pytorch_half_pixel" and not surely_less(1, scaling.after)
    return coordinate != "align_corners" and not single


def _resized_in_the_run(n: Assembler, x: str, scalings: dict[int, Scaling], method: Method) -> str:
    """Raises UndecidedError for what `open_interpolation` has no formula for."""
    if method.exclude_outside or method.antialias or method.beyond is not None:
        raise UndecidedError("weights of a resize whose extents only a run knows")
    image, last = n.rank(x) == 4 and set(scalings) <= {2, 3}, n.rank(x)
    x = to_nhwc(n, x) if image else x  # an element's channels lie side by side
    for axis, s in scalings.items():
        along = OpenAxis(axis - image, s.before, s.after, method.coordinate, _share(s))
        if method.mode == "nearest":
            x = nearest_on_axis(n, x, along, method.nearest)
        else:
            cubic_a = method.cubic_a if method.mode == "cubic" else None
            x = mixed_on_axis(n, x, along, cubic_a)
    return from_nhwc(n, x, last) if image else x


def _share(scaling: Scaling) -> Fraction | None:
    """The factor that places are counted by where that is not the ratio of the extents. Raises
    UndecidedError where it is no ratio of small numbers."""
    if scaling.exact or math.isnan(scaling.factor):
        return None
    factor = Fraction(scaling.factor).limit_denominator(LARGEST_DIVISOR)
    if np.float32(float(factor)) != np.float32(scaling.factor):
        raise UndecidedError(f"a resize by {scaling.factor} of an extent that a run decides")
    return factor


def _resize_axis(n: Assembler, x: str, axis: int, scaling: Scaling, method: Method) -> str:
    n.made(scaling.after, 1 if method.mode == "nearest" else scaling.before)
    given = _coordinates(scaling, method.coordinate)
    places = given if method.beyond is None else given.clip(0, scaling.before - 1)
    if method.mode == "nearest":
        nearest = NEAREST[method.nearest](places).clip(0, scaling.before - 1)
        y = n.op("gather", x, n.constant(nearest, "int64"), axis=axis)
    else:
        y = _along(n, x, axis, _interpolation(places, scaling, method))
    if method.beyond is None:
        return y
    mask = n.constant((given == places).reshape(-1, *[1] * (n.rank(x) - axis - 1)))
    return n.op("where", mask, y, n.like(method.beyond, y))


def _along(n: Assembler, x: str, axis: int, matrix: Array) -> str:
    """x with sums of elements of an axis, weighted by the columns of a matrix."""
    if len(matrix) >= LONG * np.count_nonzero(matrix, axis=0).max(initial=1):
        return _weighted(n, x, axis, matrix)
    order = [i for i in range(n.rank(x)) if i != axis] + [axis]
    weights = n.builder.constant(matrix.astype(n.dtype(x)))
    y = n.op("matmul", n.transpose(x, order), weights, transpose_b=False)
    return n.transpose(y, [order.index(i) for i in range(len(order))])


def _weighted(n: Assembler, x: str, axis: int, matrix: Array) -> str:
    """The same by gathers: the elements of each column that count, the first of each, then the
    second."""
    many = int(np.count_nonzero(matrix, axis=0).max(initial=1))
    places = np.argsort(matrix == 0, axis=0, kind="stable")[:many]
    weights = np.take_along_axis(matrix, places, axis=0).astype(n.dtype(x))
    total = ""
    for row, weight in zip(places, weights, strict=True):
        found = n.op("gather", x, n.constant(row, "int64"), axis=axis)
        factors = n.builder.constant(weight.reshape(-1, *[1] * (n.rank(x) - axis - 1)))
        part = n.op("mul", found, factors)
        total = n.op("add", total, part) if total else part
    return total


def _coordinates(scaling: Scaling, coordinate: str) -> Array:
    """Where each output element lies among the input's elements.

    In float32, as factors are: in float64 a factor of 2.3 would break ties by its rounding."""
    i, factor = np.arange(scaling.after, dtype=np.float32), np.float32(scaling.factor)
    if coordinate == "tf_crop_and_resize":
        (start, end), last = scaling.cut, scaling.before - 1
        share = i / (scaling.after - 1) if scaling.after > 1 else i + 0.5
        return np.asarray(start * last + share * (end - start) * last)
    if coordinate == "asymmetric":
        return np.asarray(i / factor)
    if coordinate == "align_corners":
        return i * (scaling.before - 1) / max(scaling.after - 1, 1)
    if coordinate == "pytorch_half_pixel" and scaling.after == 1:
        return i * 0
    half = np.float32(0.5)
    centred = np.asarray((i + half) / factor)
    if coordinate == "half_pixel_symmetric":
        adjustment = np.float32(scaling.after) / (factor * np.float32(scaling.before))
        centred = np.float32(scaling.before) * half * (1 - adjustment) + centred
    return np.asarray(centred - half)


def _interpolation(places: Array, scaling: Scaling, method: Method) -> Array:
    """The matrix [extent, outputs] of weights; taps outside are those of the border. Against
    aliases, data that become fewer are seen through a kernel as much wider."""
    extent, columns = scaling.before, np.arange(places.size)
    matrix = np.zeros((extent, places.size))
    first = np.floor(places).astype(int)
    narrow = min(scaling.factor, 1.0) if method.antialias else 1.0
    reach = math.ceil((2 if method.mode == "cubic" else 1) / narrow)
    for tap in range(1 - reach, 1 + reach):
        distance = np.abs(places - (first + tap)) * narrow
        cubic = method.mode == "cubic"
        weight = _cubic(distance, method.cubic_a) if cubic else np.maximum(1 - distance, 0)
        rows = (first + tap).clip(0, extent - 1)
        if method.exclude_outside:
            weight = np.where(rows == first + tap, weight, 0.0)
        np.add.at(matrix, (rows, columns), weight)
    shared = method.exclude_outside or method.antialias
    return matrix / matrix.sum(axis=0) if shared else matrix


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
