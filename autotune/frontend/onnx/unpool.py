"""ONNX importers: MaxPool with the places of what it gives, MaxUnpool, Col2Im.

In: nodes. Out: comparisons of what pools see, scatters. Places count a tensor's elements laid
flat, with channels in front of rows, whatever the order is here.
"""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import check_window, pool_window, spread
from autotune.frontend.views import from_nhwc, to_nhwc
from autotune.frontend.volume import VolumeWindow, max_pool
from autotune.frontend.windows import added_up, pool_places


@importer("MaxPool")
def max_pooling(n: NodeContext) -> str | tuple[str, str]:
    """(the largest element of every window, its place where something uses it)."""
    x, columns_first = n.input(0), bool(n.integer("storage_order", 0))
    image = to_nhwc(n, x)
    window = pool_window(n, image, n.rank(x))
    largest = max_pool(n, image, window)
    y = from_nhwc(n, largest, n.rank(x))
    if not any(n.outputs[1:]):
        return y
    places = pool_places(n, image, largest, window, columns_first=columns_first)
    return y, from_nhwc(n, places, n.rank(x))


@importer("MaxUnpool")
def max_unpool(n: NodeContext) -> str:
    """Zeros with the elements at their places. These are of a tensor of the size of the result, as
    onnxruntime has it: they come from a pool whose input the result has the shape of."""
    x, places = n.input(0), n.input(1)
    shape = n.shape(x)
    rank = len(shape) - 2
    kernel = n.integers("kernel_shape") or ()
    strides, pads = spread(n.integers("strides"), rank), n.integers("pads") or (0,) * (2 * rank)
    if n.shape(places) != shape or len(kernel) != rank or len(pads) != 2 * rank:
        raise ModelError(
            f"places of shape {n.shape(places)} and a kernel {kernel} do not fit data of {shape}"
        )
    check_window(kernel, strides, (), pads)
    ends = zip(shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    inferred = tuple((e - 1) * s + k - before - behind for e, s, k, before, behind in ends)
    wanted = n.int_parameter(2) or (*shape[:2], *inferred)
    count = math.prod(shape)
    flat = n.reshape(n.cast(places, "int64"), (count,))
    zero = n.scalar(0, n.dtype(x))
    y = n.op("scatter", zero, flat, n.reshape(x, (count,)), axis=0, extent=math.prod(wanted))
    return n.reshape(y, wanted)


@importer("Col2Im")
def col2im(n: NodeContext) -> str:
    """[batch, channels * kernel, windows] added up at the elements that the windows see."""
    x, extents, kernel = n.input(0), n.required_ints(1), n.required_ints(2)
    rank = len(extents)
    strides, dilations = (spread(n.integers(a), rank) for a in ("strides", "dilations"))
    pads = tuple(n.integers("pads") or (0,) * (2 * rank))
    check_window(kernel, strides, dilations, pads)
    window = VolumeWindow(
        kernel=tuple(kernel), strides=strides, dilations=dilations, pads=pads, valid_pads=pads
    )
    return added_up(n, x, extents, window)
