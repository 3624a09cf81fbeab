"""ONNX importers: Resize and Upsample.

Images scaled by exact factors become one `resize` op. The rest is one constant step per resized
axis: a gather of the nearest elements, or a product with the matrix of interpolation weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from autotune.errors import ModelError, UndecidedError, UnsupportedOpError
from autotune.frontend.interpolation import NEAREST, Method, Scaling, growth, resized
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import positive_axis
from autotune.sizes import any_size, is_size

COORDINATES = (
    "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
    "tf_crop_and_resize",
)  # fmt: skip
MOST_DIVISOR = 16
"""Largest divisor of factors whose products with open extents are exact in float32, too."""


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
    return resized(n, x, _scalings(n, n.shape(x)), _method(n, mode))


def _resize_by_factors(n: NodeContext, x: str, mode: str, factors: Iterable[float] | None) -> str:
    """Before opset 11; the nearest element is rounded down where the axis grows, up where it
    shrinks (the standard does not say; this is onnxruntime's reading)."""
    if factors is None:
        raise ModelError("scales are missing; the model is malformed")
    scalings = _by_factors(n.shape(x), [float(f) for f in factors])
    for nearest in ("floor", "ceil"):
        some = {a: s for a, s in scalings.items() if (s.factor < 1) == (nearest == "ceil")}
        x = resized(n, x, some, Method(mode=mode, coordinate="asymmetric", nearest=nearest))
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
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise ModelError(f"scales {factors.ravel().tolist()} must be more than 0")
        scalings = _by_factors(extents, [float(f) for f in factors.ravel()])
    elif sizes:
        if any(size < 0 for size in sizes):
            raise ModelError(f"sizes {sizes} must not be negative")
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
        i: Scaling(before=e, after=_scaled(e, f), factor=f)
        for i, (e, f) in enumerate(zip(extents, factors, strict=True))
        if f != 1.0
    }


def _scaled(extent: int, factor: float) -> int:
    if not is_size(extent):
        return math.floor(np.float32(extent) * np.float32(factor))
    exact = Fraction(factor)
    if exact.denominator > MOST_DIVISOR:
        raise UndecidedError(f"{extent} times {factor}")
    scaled: int = extent * exact.numerator // exact.denominator
    return scaled


def _by_sizes(extents: list[int], sizes: tuple[int, ...], policy: str) -> dict[int, Scaling]:
    if any_size(sizes) or any_size(extents):
        return _by_open_sizes(extents, sizes, policy)
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


def _by_open_sizes(extents: list[int], sizes: tuple[int, ...], policy: str) -> dict[int, Scaling]:
    """Raises UndecidedError where extents decide which factor all have."""
    if policy != "stretch":
        raise UndecidedError(f"which axis of {extents} grows least")
    factors = [growth(e, s) for s, e in zip(sizes, extents, strict=True)]
    return {
        i: Scaling(before=e, after=s, factor=f)
        for i, (e, s, f) in enumerate(zip(extents, sizes, factors, strict=True))
        if f != 1.0
    }
