"""ONNX importers: convolution and pooling. NCHW in the file, NHWC inside: each importer transposes
in and out, and a graph pass cancels the transposes that meet. Volumes (a depth before height and
width) are made of images: `volume`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import from_nhwc, to_nhwc
from autotune.frontend.volume import VolumeWindow, avg_pool, ceil_end, convolution
from autotune.sizes import ceil_div

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
LARGEST_WINDOW = 1 << 24
"""Elements of a window; also those along an axis from its first to its last, or that pad an
image."""


@importer("Conv")
def conv(n: NodeContext) -> str:
    return convolved(n)


def convolved(n: NodeContext) -> str:
    """The convolution of inputs 0 and 1, and the bias."""
    image, weights, window, groups = conv_operands(n, n.input(0), n.input(1))
    y = convolution(n, image, weights, window, groups)
    if (bias := n.optional(2)) is not None:
        y = n.op("add", y, bias)
    return from_nhwc(n, y, n.rank(n.input(0)))


def conv_operands(n: NodeContext, x: str, w: str) -> tuple[str, str, VolumeWindow, int]:
    """(data with channels last, weights [..., I, O], window, groups) of a convolution."""
    groups = n.integer("group", 1)
    image, w = to_nhwc(n, x), _wide_weights(n, x, w)
    window = read_window(n, n.shape(image)[1:-1], n.shape(w)[2:], ceil=False)
    return image, n.transpose(w, (*range(2, n.rank(w)), 1, 0)), window, groups


def _wide_weights(n: NodeContext, x: str, w: str) -> str:
    """Weights checked against the data; those of rank 3 get a height of 1."""
    rank = n.rank(x)
    if n.rank(w) != rank:
        raise ModelError(f"weights have shape {n.shape(w)}, expected rank {rank} as the input")
    declared = n.integers("kernel_shape")
    if declared is not None and declared != n.shape(w)[-len(declared) :]:
        raise ModelError(f"kernel_shape {declared} does not fit weights of shape {n.shape(w)}")
    if rank == 3:
        outputs, inputs, width = n.shape(w)
        w = n.reshape(w, (outputs, inputs, 1, width))
    return w


@importer("AveragePool")
def average_pooling(n: NodeContext) -> str:
    return means_of_windows(n, n.input(0))


def means_of_windows(n: NodeContext, x: str) -> str:
    """x [N,C,...] averaged by the node's window."""
    image = to_nhwc(n, x)
    window, padding = pool_window(n, image, n.rank(x)), bool(n.integer("count_include_pad", 0))
    return from_nhwc(n, avg_pool(n, image, window, padding), n.rank(x))


@importer("LpPool")
def lp_pool(n: NodeContext) -> str:
    """(sum of |x| ** p) ** (1 / p): a mean of whole windows, times how much they see."""
    x, p = n.input(0), n.integer("p", 2)
    image = to_nhwc(n, powers(n, x, p))
    window = pool_window(n, image, n.rank(x))
    window = dataclasses.replace(window, valid_pads=window.pads)
    mean = avg_pool(n, image, window, count_include_pad=True)
    total = n.op("mul", mean, n.like(math.prod(window.kernel), mean))
    return from_nhwc(n, root(n, total, p), n.rank(x))


@importer("GlobalLpPool")
def global_lp_pool(n: NodeContext) -> str:
    x, p = n.input(0), n.integer("p", 2)
    axes = tuple(range(2, n.rank(x)))
    return root(n, n.op("reduce_sum", powers(n, x, p), axes=axes, keepdims=True), p)


def powers(n: NodeContext, x: str, p: int) -> str:
    """|x| ** p."""
    size = n.op("abs", x) if p != 2 else x
    return functools.reduce(lambda a, _: n.op("mul", a, size), range(p - 1), size)


def root(n: NodeContext, total: str, p: int) -> str:
    if p <= 2:
        return total if p == 1 else n.op("sqrt", total)
    return n.op("pow", total, n.like(1 / p, total))


@importer("GlobalAveragePool")
def global_average_pool(n: NodeContext) -> str:
    return _global_pool(n, "reduce_mean")


@importer("GlobalMaxPool")
def global_max_pool(n: NodeContext) -> str:
    return _global_pool(n, "reduce_max")


def _global_pool(n: NodeContext, op: str) -> str:
    x = n.input(0)
    if n.rank(x) != 4:
        return n.op(op, x, axes=tuple(range(2, n.rank(x))), keepdims=True)
    return from_nhwc(n, n.op(op, to_nhwc(n, x), axes=(1, 2), keepdims=True), 4)


# ---------------------------------------------------------------------------------------- windows


def pool_window(n: NodeContext, image: str, rank: int) -> VolumeWindow:
    """The window of a pool over an image with channels last, which has `rank` dimensions in the
    file."""
    kernel = n.integers("kernel_shape")
    if kernel is None or len(kernel) != rank - 2:
        raise ModelError(f"kernel_shape must have {rank - 2} entries, got {kernel}")
    spatial = n.shape(image)[1:-1]
    ceil = bool(n.integer("ceil_mode", 0))
    return read_window(n, spatial, spread(kernel, len(spatial)), ceil=ceil)


def read_window(
    n: NodeContext, spatial: Sequence[int], kernel: Sequence[int], *, ceil: bool
) -> VolumeWindow:
    """Strides, dilations and pads of a node; a 1-D node's attributes have one entry, and the
    height before it is 1."""
    rank = len(spatial)
    strides, dilations = (spread(n.integers(a), rank) for a in ("strides", "dilations"))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    check_window(kernel, strides, dilations, n.integers("pads") or ())
    check_window((max(extents, default=1),), (), (), ())
    valid = _declared_pads(n, spatial, extents, strides)
    pads = valid
    if ceil:
        ends = [
            ceil_end(size, extent, stride, valid[i], valid[i + rank])
            for i, (size, extent, stride) in enumerate(zip(spatial, extents, strides, strict=True))
        ]
        pads = (*valid[:rank], *ends)
        valid = (*valid[:rank], *map(min, valid[rank:], ends))
    return VolumeWindow(
        kernel=tuple(kernel), strides=strides, dilations=dilations, pads=pads, valid_pads=valid
    )


def check_window(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> None:
    """Raise ModelError where a window is of no size, or reaches farther than any image."""
    least = {"kernel": (1, kernel), "strides": (1, strides), "dilations": (1, dilations),
             "pads": (-LARGEST_WINDOW, pads)}  # fmt: skip
    for name, (first, values) in least.items():
        if wrong := [v for v in values if not first <= v <= LARGEST_WINDOW]:
            raise ModelError(
                f"operands do not fit together: {name} of {wrong[0]} elements along an axis, "
                f"dilations included; expected {first} to {LARGEST_WINDOW}"
            )
    if (elements := math.prod(kernel)) > LARGEST_WINDOW:
        raise ModelError(f"a window of {elements} elements; expected at most {LARGEST_WINDOW}")


def spread(values: Sequence[int] | None, rank: int, default: int = 1) -> tuple[int, ...]:
    """One value per dimension: what is not said is the default, for dimensions in front too."""
    values = tuple(values or ())
    if values and len(values) not in (rank, rank - 1):
        raise ModelError(f"expected an attribute of {rank} dimensions, got {values}")
    return (default,) * (rank - len(values)) + values


def auto_pad(n: NodeContext) -> str:
    """One of the standard's ways to pad. Raises ModelError."""
    auto = n.text("auto_pad", "") or AUTO_PADS[0]
    if auto not in AUTO_PADS:
        raise ModelError(f"auto_pad is {auto!r}; expected one of {', '.join(AUTO_PADS)}")
    return auto


def _declared_pads(
    n: NodeContext, spatial: Sequence[int], extents: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    auto = auto_pad(n)
    given = n.integers("pads")
    rank = len(spatial)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        both = [_same(*v, auto) for v in zip(spatial, extents, strides, strict=True)]
        return (*(b for b, _ in both), *(e for _, e in both))
    if auto == "VALID" or given is None:
        return (0,) * (2 * rank)
    if len(given) % 2 or min(given) < 0:
        raise UnsupportedOpError(f"pads must be one non-negative pair per dimension, got {given}")
    half = len(given) // 2
    return (*spread(given[:half], rank, 0), *spread(given[half:], rank, 0))


def _same(size: int, extent: int, stride: int, auto: str) -> tuple[int, int]:
    total = max((ceil_div(size, stride) - 1) * stride + extent - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if auto == "SAME_UPPER" else (large, small)
