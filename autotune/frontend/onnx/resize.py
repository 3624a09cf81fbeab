"""ONNX importers: Resize and Upsample.

Images scaled by exact factors become one `resize` op. The rest is one constant step per resized
axis: a gather of the nearest elements, or a product with the matrix of interpolation weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import from_nhwc, to_nhwc
from autotune.frontend.onnx.norm import positive_axis
from autotune.types import Array

COORDINATES = (
    "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
    "tf_crop_and_resize",
)  # fmt: skip
RESIZE_OP_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How elements between two samples are found."""

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
    """One axis: extents before and after, and the factor, which need not be their ratio."""

    before: int
    after: int
    factor: float
    cut: tuple[float, float] = (0.0, 1.0)
    """What is resized, in parts of the axis."""

    @property
    def exact(self) -> bool:
        return bool(np.float32(self.factor) == np.float32(self.after / self.before))


@importer("Upsample")
def upsample(n: NodeContext) -> str:
    x, mode = n.input(0), n.text("mode", "nearest")
    given = n.attribute("scales") if n.opset < 9 else n.parameter(1)
    return _resize_by_factors(n, x, _mode(mode), given)


@importer("Resize")
def resize(n: NodeContext) -> str:
    x = n.input(0)
    mode = _mode(n.text("mode", "nearest"))
    if n.opset < 11:
        return _resize_by_factors(n, x, mode, n.parameter(1))
    return _resize(n, x, _scalings(n, n.shape(x)), _method(n, mode))


def _resize_by_factors(n: NodeContext, x: str, mode: str, factors: Iterable[float] | None) -> str:
    """Before opset 11; the nearest element is rounded down where the axis grows, up where it
    shrinks (the standard does not say; this is onnxruntime's reading)."""
    if factors is None:
        raise ModelError("scales are missing; the model is malformed")
    scalings = _by_factors(n.shape(x), [float(f) for f in factors])
    for nearest in ("floor", "ceil"):
        some = {a: s for a, s in scalings.items() if (s.factor < 1) == (nearest == "ceil")}
        x = _resize(n, x, some, Method(mode=mode, coordinate="asymmetric", nearest=nearest))
    return x


def _mode(mode: str) -> str:
    known = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
    if mode not in known:
        raise UnsupportedOpError(f"mode must be one of {', '.join(known)}, got {mode!r}")
    return known[mode]


def _method(n: NodeContext, mode: str) -> Method:
    coordinate = n.text("coordinate_transformation_mode", "half_pixel")
    nearest = n.text("nearest_mode", "round_prefer_floor")
    beyond = n.number("extrapolation_value", 0.0)
    antialias = bool(n.integer("antialias", 0))
    if coordinate not in COORDINATES or nearest not in NEAREST:
        raise UnsupportedOpError(
            f"coordinate_transformation_mode {coordinate!r} with nearest_mode {nearest!r} is not "
            f"supported; use one of {', '.join(COORDINATES)}"
        )
    return Method(
        mode=mode,
        coordinate=coordinate,
        nearest=nearest,
        cubic_a=n.number("cubic_coeff_a", -0.75),
        exclude_outside=bool(n.integer("exclude_outside", 0)),
        antialias=antialias and mode != "nearest",
        beyond=beyond if coordinate == "tf_crop_and_resize" else None,
    )


def _scalings(n: NodeContext, shape: tuple[int, ...]) -> dict[int, Scaling]:
    """From the inputs `scales` or `sizes`, for all axes or those of the attribute `axes`."""
    given = n.integers("axes")
    axes = [positive_axis(a, len(shape)) for a in given or range(len(shape))]
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    factors, sizes = n.parameter(2), n.int_parameter(3)
    extents = [shape[a] for a in axes]
    if factors is not None and factors.size:
        scalings = _by_factors(extents, [float(f) for f in factors.ravel()])
    elif sizes:
        scalings = _by_sizes(extents, sizes, policy)
    else:
        raise ModelError("neither scales nor sizes are given; the model is malformed")
    if n.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        scalings = _cut(n, scalings, extents)
    return {axes[i]: s for i, s in scalings.items()}


def _cut(n: NodeContext, scalings: dict[int, Scaling], extents: list[int]) -> dict[int, Scaling]:
    """Every axis with the part of it that the input `roi` says: all starts, then all ends."""
    roi = n.parameter(1)
    if roi is None or roi.size != 2 * len(extents):
        raise ModelError(f"tf_crop_and_resize needs a roi of {2 * len(extents)} numbers")
    parts = roi.reshape(2, -1).T.astype(float)
    whole = {i: Scaling(before=e, after=e, factor=1.0) for i, e in enumerate(extents)} | scalings
    return {
        i: dataclasses.replace(s, cut=(parts[i][0], parts[i][1]))
        for i, s in whole.items()
        if i in scalings or tuple(parts[i]) != (0.0, 1.0)
    }


def _by_factors(extents: list[int] | tuple[int, ...], factors: list[float]) -> dict[int, Scaling]:
    # The product in float32, as factors are: 3 * 1.6666666 is 5.
    return {
        i: Scaling(before=e, after=math.floor(np.float32(e) * np.float32(f)), factor=f)
        for i, (e, f) in enumerate(zip(extents, factors, strict=True))
        if f != 1.0
    }


def _by_sizes(extents: list[int], sizes: tuple[int, ...], policy: str) -> dict[int, Scaling]:
    ratios = [s / e for s, e in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = tuple(math.floor(ratio * e + 0.5) for e in extents)
        ratios = [ratio] * len(extents)
    return {
        i: Scaling(before=e, after=s, factor=r)
        for i, (e, s, r) in enumerate(zip(extents, sizes, ratios, strict=True))
        if s != e or r != 1.0
    }


def _resize(n: NodeContext, x: str, scalings: dict[int, Scaling], method: Method) -> str:
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
    for axis, scaling in scalings.items():
        x = _resize_axis(n, x, axis, scaling, method)
    return x


def _is_resize_op(rank: int, scalings: dict[int, Scaling], method: Method) -> bool:
    return (
        rank == 4
        and bool(scalings)
        and set(scalings) <= {2, 3}
        and all(s.exact for s in scalings.values())
        and method.mode in ("nearest", "linear")
        and method.coordinate in RESIZE_OP_COORDINATES
        and not method.exclude_outside
        and not method.antialias
    )


def _resize_axis(n: NodeContext, x: str, axis: int, scaling: Scaling, method: Method) -> str:
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


def _along(n: NodeContext, x: str, axis: int, matrix: Array) -> str:
    """x with sums of elements of an axis, weighted by the columns of a matrix."""
    order = [i for i in range(n.rank(x)) if i != axis] + [axis]
    weights = n.builder.constant(matrix.astype(n.dtype(x)))
    y = n.op("matmul", n.transpose(x, order), weights, transpose_b=False)
    return n.transpose(y, [order.index(i) for i in range(len(order))])


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
    centred = np.asarray((i + np.float32(0.5)) / factor - np.float32(0.5))
    if coordinate == "half_pixel_symmetric":
        adjustment = scaling.after / (scaling.factor * scaling.before)
        return centred + scaling.before / 2 * (1 - adjustment)
    return centred


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
