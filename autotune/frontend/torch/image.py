"""ATen importers: convolutions, pools and resized images. Channels come first in PyTorch and last
in graphs: each importer transposes in and out, and a graph pass cancels the transposes that meet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.deconvolution import Geometry, phases, spread_out
from autotune.frontend.grid import PADDINGS, Sampling, grid_sampled
from autotune.frontend.interpolation import Method, Scaling, growth, resized
from autotune.frontend.torch.context import AtenCall, AtenImporter, aten
from autotune.frontend.views import from_nhwc, to_nhwc
from autotune.frontend.volume import VolumeWindow, avg_pool, ceil_end, convolution, max_pool
from autotune.frontend.windows import added_up, as_columns, pool_places
from autotune.sizes import any_size
from autotune.types import Array


@aten("convolution", "conv1d", "conv2d", "conv3d")
def conv(n: AtenCall) -> str:
    x, w, bias = n.value("input"), n.value("weight"), n.optional("bias")
    rank = n.rank(x)
    if rank not in (3, 4, 5) or n.rank(w) != rank or 0 in n.shape(x):
        raise UnsupportedOpError(f"convolutions of {n.shape(x)} are not supported")
    if rank == 3:
        w = n.reshape(w, (*n.shape(w)[:2], 1, n.shape(w)[2]))
    if n.has("transposed") and n.arg("transposed", False):
        y = _transposed(n, to_nhwc(n, x), w, rank)
    else:
        window = _window(n, n.shape(w)[2:], rank)
        weights = n.transpose(w, (*range(2, n.rank(w)), 1, 0))
        y = convolution(n, to_nhwc(n, x), weights, window, n.integer("groups", 1))
    if bias is not None:
        y = n.op("add", y, bias)
    return from_nhwc(n, y, rank)


def spread(values: Sequence[int], rank: int, none: int) -> tuple[int, ...]:
    """One value per spatial dimension of a tensor with channels last: one for all is repeated, and
    a row of pixels has a height."""
    dims = rank - 2
    values = tuple(values) if len(values) == dims else tuple(values) * dims if values else ()
    values = values or (none,) * dims
    return (none, *values) if rank == 3 else values


def _window(n: AtenCall, kernel: Sequence[int], rank: int) -> VolumeWindow:
    pads = spread(n.integers("padding"), rank, 0)
    return VolumeWindow(
        kernel=tuple(kernel), strides=spread(n.integers("stride"), rank, 1),
        dilations=spread(n.integers("dilation"), rank, 1), pads=(*pads, *pads),
        valid_pads=(*pads, *pads),
    )  # fmt: skip


def _transposed(n: AtenCall, image: str, w: str, rank: int) -> str:
    kernel, spatial = n.shape(w)[2:], n.shape(image)[1:-1]
    strides, dilations = (spread(n.integers(a), rank, 1) for a in ("stride", "dilation"))
    pads, more = (spread(n.integers(a), rank, 0) for a in ("padding", "output_padding"))
    extent = tuple(
        (i - 1) * s + (k - 1) * d + 1 + m - 2 * p
        for i, s, k, d, m, p in zip(spatial, strides, kernel, dilations, more, pads, strict=True)
    )
    geometry = Geometry(
        kernel=tuple(kernel), strides=strides, dilations=dilations, start=pads, extent=extent
    )
    if any(d != 1 and s != 1 for d, s in zip(dilations, strides, strict=True)):
        w, geometry = spread_out(n, w, geometry)
    return phases(n, image, w, geometry, n.integer("groups", 1))


# ------------------------------------------------------------------------------------------ pools


def _pool_window(n: AtenCall, x: str, rank: int) -> VolumeWindow:
    """The window of a pool; with ceil_mode it may reach out behind."""
    kernel = spread(n.integers("kernel_size"), rank, 1)
    strides = spread(n.integers("stride") or n.integers("kernel_size"), rank, 1)
    dilations = spread(n.integers("dilation") if n.has("dilation") else (), rank, 1)
    pads = spread(n.integers("padding"), rank, 0)
    ends = pads
    if n.arg("ceil_mode", False):
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        ends = tuple(map(ceil_end, n.shape(x)[1:-1], extents, strides, pads, pads))
    return VolumeWindow(
        kernel=kernel, strides=strides, dilations=dilations, pads=(*pads, *ends),
        valid_pads=(*pads, *map(min, pads, ends)),
    )  # fmt: skip


def _batched(n: AtenCall, x: str, dims: int) -> str:
    """x with a batch of one, where it has none."""
    return x if n.rank(x) == dims + 2 else n.reshape(x, (1, *n.shape(x)))


def _dims(n: AtenCall) -> int:
    return int(str(n.target).split("pool")[1][0])


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d", "max_pool1d",
      "max_pool3d", "_low_memory_max_pool2d_with_offsets")  # fmt: skip
def max_pooling(n: AtenCall) -> str | tuple[str | None, ...]:
    """(the largest element of every window, its place in its plane where somebody asks)."""
    x = _batched(n, n.value("self"), _dims(n))
    image = to_nhwc(n, x)
    return _largest(n, image, _pool_window(n, image, n.rank(x)), n.rank(x))


def _largest(
    n: AtenCall, image: str, window: VolumeWindow, rank: int
) -> str | tuple[str | None, ...]:
    seen = max_pool(n, image, window)
    y = n.reshape(from_nhwc(n, seen, rank), n.made_shape)
    if not isinstance(n.result, tuple | list):
        return y
    if not n.asked(1) or "offsets" in str(n.target):
        return y, None
    places = pool_places(n, image, seen, window, whole=False)
    return y, n.reshape(from_nhwc(n, places, rank), n.made_shape)


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_largest(n: AtenCall) -> tuple[str | None, ...]:
    """Windows of one size where sizes divide; else the largest of what each window sees, along
    one axis after the other."""
    dims = _dims(n)
    x = _batched(n, n.value("self"), dims)
    extents, made = n.shape(x)[2:], n.made_shape[-dims:]
    if 0 in n.shape(x):
        raise UnsupportedOpError("pools of nothing are not supported")
    if all(e % m == 0 for e, m in zip(extents, made, strict=True)):
        steps, none = tuple(e // m for e, m in zip(extents, made, strict=True)), (0,) * (2 * dims)
        window = VolumeWindow(
            kernel=steps, strides=steps, dilations=(1,) * dims, pads=none, valid_pads=none
        )
        found = _largest(n, to_nhwc(n, x), window, n.rank(x))
        assert isinstance(found, tuple)
        return found
    for axis, (extent, count) in enumerate(zip(extents, made, strict=True), start=2):
        bounds = [adaptive_window(extent, count, place) for place in range(count)]
        length = max(end - start for start, end in bounds)
        places = [[min(start + i, end - 1) for i in range(length)] for start, end in bounds]
        seen = n.op("gather", x, n.constant(places, "int64"), axis=axis)
        x = n.op("reduce_max", seen, axes=(axis + 1,), keepdims=False)
    return n.reshape(x, n.made_shape), None


def adaptive_window(extent: int, count: int, place: int) -> tuple[int, int]:
    """First and last + 1 of the elements that an adaptive pool sees at a place."""
    return place * extent // count, -(-(place + 1) * extent // count)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pooling(n: AtenCall) -> str:
    if n.has("divisor_override") and n.arg("divisor_override") is not None:
        raise UnsupportedOpError("divisor_override is not supported")
    x = _batched(n, n.value("self"), _dims(n))
    image = to_nhwc(n, x)
    window = _pool_window(n, image, n.rank(x))
    y = avg_pool(n, image, window, bool(n.arg("count_include_pad", True)))
    return n.reshape(from_nhwc(n, y, n.rank(x)), n.made_shape)


@aten("_adaptive_avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
      "_adaptive_avg_pool3d", "adaptive_avg_pool3d")  # fmt: skip
def adaptive_average(n: AtenCall) -> str:
    """Windows of one size where sizes divide; else a product with a matrix of shares per axis."""
    x = n.value("self")
    made, dims = n.made_shape, _dims(n)
    if 0 in n.shape(x):
        raise UnsupportedOpError("pools of nothing are not supported")
    first = n.rank(x) - dims
    if all(e == 1 for e in made[first:]):
        return n.op("reduce_mean", x, axes=tuple(range(first, n.rank(x))), keepdims=True)
    for axis in range(first, n.rank(x)):
        if n.shape(x)[axis] != made[axis]:
            x = _adaptive_axis(n, x, axis, made[axis])
    return x


def _adaptive_axis(n: AtenCall, x: str, axis: int, count: int) -> str:
    extent = n.shape(x)[axis]
    if extent % count == 0:
        apart = (*n.shape(x)[:axis], count, extent // count, *n.shape(x)[axis + 1 :])
        return n.op("reduce_mean", n.reshape(x, apart), axes=(axis + 1,), keepdims=False)
    shares = np.zeros((extent, count))
    for place in range(count):
        start, end = adaptive_window(extent, count, place)
        shares[start:end, place] = 1 / (end - start)
    return _times_shares(n, x, axis, shares)


def _times_shares(n: AtenCall, x: str, axis: int, shares: Array) -> str:
    """x with an axis multiplied by a matrix."""
    order = [d for d in range(n.rank(x)) if d != axis] + [axis]
    y = n.op("matmul", n.transpose(x, order), n.constant(shares, n.dtype(x)), transpose_b=False)
    return n.transpose(y, [order.index(d) for d in range(len(order))])


# ---------------------------------------------------------------------------------------- resizing


def _resized(mode: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.value("self" if n.has("self") else "input")
        align = bool(n.arg("align_corners", False)) if n.has("align_corners") else False
        coordinate = "align_corners" if align else "half_pixel"
        method = Method(mode=mode, coordinate=coordinate)
        if mode == "nearest":
            method = Method(mode=mode, coordinate="asymmetric")
        scalings = {}
        for axis, (before, after) in enumerate(zip(n.shape(x), n.made_shape, strict=True)):
            if before != after:
                factor = _factor(n, axis, before, after, align)
                scalings[axis] = Scaling(before=before, after=after, factor=factor)
        return resized(n, x, scalings, method) if scalings else x

    return run


def _factor(n: AtenCall, axis: int, before: int, after: int, align: bool) -> float:
    """Growth of an axis: as the caller says, else by its sizes."""
    if not align:
        given = n.arg("scale_factors") if n.has("scale_factors") else None
        if given:
            return float(given[axis - 2])
        known = [a for a in ("scales_d", "scales_h", "scales_w", "scales") if n.has(a)]
        here = known[axis - 2] if axis - 2 < len(known) else None
        if here and n.arg(here) is not None:
            return float(n.arg(here))
    return growth(before, after)


aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")(_resized("nearest"))
aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")(_resized("linear"))
aten("upsample_bicubic2d")(_resized("cubic"))


@aten("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def nearest_exact(n: AtenCall) -> str:
    x = n.value("self" if n.has("self") else "input")
    pairs = enumerate(zip(n.shape(x), n.made_shape, strict=True))
    method = Method(mode="nearest", coordinate="half_pixel", nearest="round_prefer_ceil")
    for axis, (before, after) in pairs:
        if before != after:
            factor = _factor(n, axis, before, after, False)
            if any_size((before, after)):
                scaling = Scaling(before=before, after=after, factor=factor)
                x = resized(n, x, {axis: scaling}, method)
                continue
            places = np.floor((np.arange(after) + 0.5) / factor).clip(0, before - 1)
            x = n.op("gather", x, n.constant(places, "int64"), axis=axis)
    return x


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def smoothed(n: AtenCall) -> str:
    """A product with a matrix of shares per axis: of images that shrink, all elements count."""
    x, cubic = n.value("self" if n.has("self") else "input"), "bicubic" in str(n.target)
    if not n.dtype(x).startswith("float"):
        n.refuse(f"smoothed images of {n.dtype(x)}")
    for axis, (before, after) in enumerate(zip(n.shape(x), n.made_shape, strict=True)):
        if before != after:
            align = bool(n.arg("align_corners", False))
            if align:
                step = (before - 1) / (after - 1) if after > 1 else 0.0
            else:
                step = 1 / _factor(n, axis, before, after, False)
            x = _times_shares(n, x, axis, antialiased(before, after, step, cubic=cubic))
    return x


def antialiased(before: int, after: int, step: float, *, cubic: bool) -> Array:
    """[before, after]: the share of each element in each one of a resized axis."""
    shares, wide = np.zeros((before, after)), max(step, 1.0)
    reach = wide * (2 if cubic else 1)
    for place in range(after):
        center = step * (place + 0.5)
        start, end = max(int(center - reach + 0.5), 0), min(int(center + reach + 0.5), before)
        far = np.abs((np.arange(start, end) - center + 0.5) / wide)
        weights = _cubic(far) if cubic else np.maximum(1 - far, 0)
        shares[start:end, place] = weights / weights.sum()
    return shares


def _cubic(far: Array, a: float = -0.5) -> Array:
    """Keys' kernel (1981), as PyTorch has it for such resizes."""
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    apart = (((far - 5) * far + 8) * far - 4) * a
    return np.where(far < 1, near, np.where(far < 2, apart, 0.0))


@aten("im2col")
def im2col(n: AtenCall) -> str:
    """[N, C, H, W] -> [N, C * kernel, places]."""
    x = n.value("self")
    kernel, dilation = n.integers("kernel_size"), n.integers("dilation")
    padding, stride = n.integers("padding"), n.integers("stride")
    if n.rank(x) != 4:
        raise UnsupportedOpError("only batches of images are supported")
    window = VolumeWindow(
        kernel=kernel, strides=stride, dilations=dilation, pads=padding * 2, valid_pads=padding * 2
    )
    return n.reshape(as_columns(n, x, window), n.made_shape)


@aten("col2im")
def col2im(n: AtenCall) -> str:
    """[N, C * kernel, places] added up at the elements that they are of: [N, C, H, W]."""
    x = n.value("self")
    x = n.reshape(x, (1, *n.shape(x))) if n.rank(x) == 2 else x
    pads = n.integers("padding") * 2
    window = VolumeWindow(
        kernel=n.integers("kernel_size"), strides=n.integers("stride"),
        dilations=n.integers("dilation"), pads=pads, valid_pads=pads,
    )  # fmt: skip
    return n.reshape(added_up(n, x, n.integers("output_size"), window), n.made_shape)


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(n: AtenCall) -> str:
    mode = ("linear", "nearest", "cubic")[n.integer("interpolation_mode")]
    padding = PADDINGS[n.integer("padding_mode")]
    how = Sampling(mode=mode, padding=padding, aligned=bool(n.arg("align_corners", False)))
    x, grid = n.value("input"), n.value("grid")
    if 0 in n.shape(x) or 0 in n.shape(grid):
        raise UnsupportedOpError("grids of nothing are not supported")
    return grid_sampled(n, x, grid, how)
