"""ONNX importers: convolution and pooling. NCHW in the file, NHWC inside: each importer transposes
in and out, and a graph pass cancels the transposes that meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx_context import NodeContext, importer
from autotune.types import Attr

TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A sliding window over two spatial dimensions; `valid_pads` are those the model declares,
    `pads` may be larger behind so that the output has the size that ceil_mode asks for."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    valid_pads: tuple[int, int, int, int]


def to_nhwc(n: NodeContext, x: str) -> str:
    """NCHW (or NCW, given a height of 1) to NHWC."""
    shape = n.shape(x)
    if len(shape) not in (3, 4):
        raise UnsupportedOpError(
            f"the input has shape {shape}; only 1-D and 2-D images ([N,C,W] or [N,C,H,W]) are "
            "supported"
        )
    if len(shape) == 3:
        x = n.reshape(x, (*shape[:2], 1, shape[2]))
    return n.transpose(x, TO_NHWC)


def from_nhwc(n: NodeContext, y: str, rank: int) -> str:
    """Back to NCHW, or to NCW where the model's tensors have rank 3."""
    y = n.transpose(y, TO_NCHW)
    if rank == 3:
        batch, channels, _, width = n.shape(y)
        y = n.reshape(y, (batch, channels, width))
    return y


@importer("Conv")
def conv(n: NodeContext) -> str:
    image, weights, attrs = conv_operands(n, n.input(0), n.input(1))
    y = n.op("conv2d", image, weights, **attrs)
    if (bias := n.optional(2)) is not None:
        y = n.op("add", y, bias)
    return from_nhwc(n, y, n.rank(n.input(0)))


def conv_operands(n: NodeContext, x: str, w: str) -> tuple[str, str, dict[str, Attr]]:
    """(data, weights, attributes) of the conv2d that a convolution is."""
    rank, groups = n.rank(x), n.integer("group", 1)
    image = to_nhwc(n, x)
    if n.rank(w) != rank:
        raise ModelError(f"weights have shape {n.shape(w)}, expected rank {rank} as the input")
    if rank == 3:
        outputs, inputs, width = n.shape(w)
        w = n.reshape(w, (outputs, inputs, 1, width))
    declared = n.integers("kernel_shape")
    if declared is not None and declared != n.shape(w)[-len(declared) :]:
        raise ModelError(f"kernel_shape {declared} does not fit weights of shape {n.shape(w)}")
    window = read_window(n, n.shape(image)[1:3], n.shape(w)[2:], ceil=False)
    attrs: dict[str, Attr] = {
        "strides": window.strides, "pads": window.pads, "dilations": window.dilations,
        "groups": groups,
    }  # fmt: skip
    return image, n.transpose(w, (2, 3, 1, 0)), attrs


@importer("MaxPool")
def max_pool(n: NodeContext) -> str:
    n.ignore("storage_order")  # decides the order of the indices output only
    x = n.input(0)
    image = to_nhwc(n, x)
    window = _pool_window(n, image, n.rank(x))
    y = n.op(
        "max_pool2d", image, kernel=window.kernel, strides=window.strides, pads=window.pads,
        dilations=window.dilations,
    )  # fmt: skip
    return from_nhwc(n, y, n.rank(x))


@importer("AveragePool")
def average_pool(n: NodeContext) -> str:
    x = n.input(0)
    image = to_nhwc(n, x)
    window = _pool_window(n, image, n.rank(x))
    y = n.op(
        "avg_pool2d", image, kernel=window.kernel, strides=window.strides, pads=window.pads,
        dilations=window.dilations, valid_pads=window.valid_pads,
        count_include_pad=bool(n.integer("count_include_pad", 0)),
    )  # fmt: skip
    return from_nhwc(n, y, n.rank(x))


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


def _pool_window(n: NodeContext, image: str, rank: int) -> Window:
    kernel = n.integers("kernel_shape")
    if kernel is None or len(kernel) != rank - 2:
        raise ModelError(f"kernel_shape must have {rank - 2} entries, got {kernel}")
    ceil = bool(n.integer("ceil_mode", 0))
    return read_window(n, n.shape(image)[1:3], (1, *kernel)[-2:], ceil=ceil)


def read_window(
    n: NodeContext, spatial: Sequence[int], kernel: Sequence[int], *, ceil: bool
) -> Window:
    """Strides, dilations and pads of a node over an image of two spatial dimensions; a 1-D node's
    attributes have one entry, and the height before it is 1."""
    strides = _pair(n.integers("strides"), 1)
    dilations = _pair(n.integers("dilations"), 1)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    valid = _declared_pads(n, spatial, extents, strides)
    pads = valid
    if ceil:
        ends = [
            _ceil_end(size, extent, stride, valid[i], valid[i + 2])
            for i, (size, extent, stride) in enumerate(zip(spatial, extents, strides, strict=True))
        ]
        pads = (valid[0], valid[1], ends[0], ends[1])
        valid = (valid[0], valid[1], min(valid[2], ends[0]), min(valid[3], ends[1]))
    return Window(
        kernel=(kernel[0], kernel[1]),
        strides=strides,
        dilations=dilations,
        pads=pads,
        valid_pads=valid,
    )


def _pair(values: tuple[int, ...] | None, default: int) -> tuple[int, int]:
    if values is None:
        return default, default
    if len(values) not in (1, 2):
        raise UnsupportedOpError(f"expected attributes of one or two dimensions, got {values}")
    return (default, values[0]) if len(values) == 1 else (values[0], values[1])


def _declared_pads(
    n: NodeContext, spatial: Sequence[int], extents: Sequence[int], strides: Sequence[int]
) -> tuple[int, int, int, int]:
    auto = n.text("auto_pad", "NOTSET")
    given = n.integers("pads")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        top, bottom = _same(spatial[0], extents[0], strides[0], auto)
        left, right = _same(spatial[1], extents[1], strides[1], auto)
        return top, left, bottom, right
    if auto == "VALID" or given is None:
        return 0, 0, 0, 0
    if auto != "NOTSET":
        raise UnsupportedOpError(f"auto_pad={auto!r} is not known")
    if len(given) == 2:
        given = (0, given[0], 0, given[1])
    if len(given) != 4 or min(given) < 0:
        raise UnsupportedOpError(f"pads must be one non-negative pair per dimension, got {given}")
    return given[0], given[1], given[2], given[3]


def _same(size: int, extent: int, stride: int, auto: str) -> tuple[int, int]:
    total = max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def _ceil_end(size: int, extent: int, stride: int, before: int, after: int) -> int:
    """The pad behind that makes the size rounded down what ceil_mode gives. A window that would
    begin in the pad behind is left out."""
    count = math.ceil((size + before + after - extent) / stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return max((count - 1) * stride + extent - size - before, 0)
