"""TensorFlow Lite importers: operators that pick, repeat, mirror or turn elements, of any type;
bytes stay in their steps."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.ordering import first
from autotune.frontend.places import row_places, rows
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.linear import same_steps
from autotune.frontend.views import positive_axis, select_ranges


@tflite_importer("MIRROR_PAD")
def mirror_pad(n: OperatorContext) -> str:
    """Around a dimension, its elements backward: without the outermost one, or with it."""
    _moves(n, 0)
    x, shape = n.input(0), n.shape(n.input(0))
    beyond = 1 - n.options("MirrorPadOptions").Mode()
    for axis, (before, behind) in enumerate(np.asarray(n.array(1)).reshape(-1, 2).tolist()):
        if not before and not behind:
            continue
        extent = shape[axis]
        if min(before, behind) < 0 or max(before, behind) > extent - beyond:
            raise ModelError(f"{before} and {behind} more of {extent} elements are not there")
        at = np.arange(-before, extent + behind)
        at = np.where(at < 0, -at - 1 + beyond, at)
        at = np.where(at >= extent, 2 * extent - 1 - beyond - at, at)
        x = n.op("gather", x, n.constant(at.astype(np.int64)), axis=axis)
    return x


@tflite_importer("GATHER")
def gather(n: OperatorContext) -> str:
    _moves(n, 0)
    options, x = n.options("GatherOptions"), n.input(0)
    if options.BatchDims():
        raise UnsupportedOpError("a batch of places is not supported; expected batch_dims=0")
    return n.op("gather", x, n.input(1), axis=positive_axis(options.Axis(), n.rank(x)))


@tflite_importer("TILE")
def tile(n: OperatorContext) -> str:
    """Every dimension d becomes [times, d], and the pair is merged."""
    _moves(n, 0)
    x, times = n.input(0), n.ints(1)
    extents = n.shape(x)
    pairs = list(zip(times, extents, strict=True))
    x = n.reshape(x, [e for extent in extents for e in (1, extent)])
    x = n.op("expand", x, shape=tuple(e for pair in pairs for e in pair))
    return n.reshape(x, [a * b for a, b in pairs])


@tflite_importer("BROADCAST_TO")
def broadcast_to(n: OperatorContext) -> str:
    _moves(n, 0)
    return n.op("expand", n.input(0), shape=n.result().shape)


@tflite_importer("SHAPE", "RANK", "ZEROS_LIKE")
def known_from_shapes(n: OperatorContext) -> str:
    """What a file of fixed sizes says already."""
    shape, result = n.shape(n.input(0)), n.result()
    if n.is_a("SHAPE"):
        return n.constant(shape, result.dtype)
    if n.is_a("RANK"):
        return n.constant(len(shape), result.dtype)
    n.plain()
    return n.op("expand", n.scalar(0, result.dtype), shape=shape)


@tflite_importer("FILL")
def fill(n: OperatorContext) -> str:
    _moves(n, 1)
    return n.op("expand", n.input(1), shape=n.result().shape)


@tflite_importer("UNPACK")
def unpack(n: OperatorContext) -> tuple[str, ...]:
    _moves(n, 0)
    axis = positive_axis(n.options("UnpackOptions").Axis(), n.rank(n.input(0)))
    return tuple(
        n.reshape(part, n.result(i).shape)
        for i, part in enumerate(_parts(n, n.input(0), axis, (1,) * n.outputs))
    )


@tflite_importer("SPLIT_V")
def split_v(n: OperatorContext) -> tuple[str, ...]:
    """Parts of given sizes, of which one may be what is left."""
    _moves(n, 0)
    x, sizes = n.input(0), list(n.ints(1))
    axis = positive_axis(n.ints(2)[0], n.rank(x))
    if -1 in sizes:
        sizes[sizes.index(-1)] = n.shape(x)[axis] - sum(sizes) - 1
    if min(sizes) < 0 or sum(sizes) != n.shape(x)[axis]:
        raise ModelError(f"parts of {sizes} elements are not {n.shape(x)[axis]} together")
    return _parts(n, x, axis, sizes)


def _parts(
    n: OperatorContext, x: str, axis: int, sizes: tuple[int, ...] | list[int]
) -> tuple[str, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(
        select_ranges(n, x, {axis: range(end - size, end)})
        for size, end in zip(sizes, ends, strict=True)
    )


@tflite_importer("REVERSE_V2")
def reverse(n: OperatorContext) -> str:
    _moves(n, 0)
    x = n.input(0)
    axes = {positive_axis(a, n.rank(x)) for a in n.ints(1)}
    return select_ranges(n, x, {a: range(n.shape(x)[a] - 1, -1, -1) for a in sorted(axes)})


@tflite_importer("DEPTH_TO_SPACE")
def depth_to_space(n: OperatorContext) -> str:
    _moves(n, 0)
    block, x = n.options("DepthToSpaceOptions").BlockSize(), n.input(0)
    batch, rows, columns, channels = n.shape(x)
    x = n.reshape(x, (batch, rows, columns, block, block, channels // max(block * block, 1)))
    return n.reshape(n.transpose(x, (0, 1, 3, 2, 4, 5)), n.result().shape)


@tflite_importer("SPACE_TO_DEPTH")
def space_to_depth(n: OperatorContext) -> str:
    _moves(n, 0)
    block, x = max(n.options("SpaceToDepthOptions").BlockSize(), 1), n.input(0)
    batch, rows, columns, channels = n.shape(x)
    x = n.reshape(x, (batch, rows // block, block, columns // block, block, channels))
    return n.reshape(n.transpose(x, (0, 1, 3, 2, 4, 5)), n.result().shape)


@tflite_importer("SPACE_TO_BATCH_ND")
def space_to_batch(n: OperatorContext) -> str:
    """Every `block`th row and column is an image of its own, behind those of the batch."""
    _moves(n, 0)
    x, block = n.input(0), n.ints(1)
    around = np.asarray(n.array(2)).reshape(-1, 2).tolist()
    more = n.rank(x) - 1 - len(block)
    before, behind = ([0, *(pair[i] for pair in around), *[0] * more] for i in (0, 1))
    x = n.op("pad", x, pads=(*before, *behind), value=float(n.tensor(0).point if n.steps else 0))
    batch, *extents = n.shape(x)
    split = [e for extent, b in zip(extents, block, strict=False) for e in (extent // b, b)]
    x = n.reshape(x, (batch, *split, *extents[len(block) :]))
    inner = [2 * d + 2 for d in range(len(block))]
    behind = list(range(2 * len(block) + 1, n.rank(x)))
    return n.reshape(
        n.transpose(x, (*inner, 0, *(d - 1 for d in inner), *behind)), n.result().shape
    )


@tflite_importer("BATCH_TO_SPACE_ND")
def batch_to_space(n: OperatorContext) -> str:
    _moves(n, 0)
    x, block = n.input(0), n.ints(1)
    batch, *extents = n.shape(x)
    count = len(block)
    x = n.reshape(x, (*block, batch // max(math.prod(block), 1), *extents))
    turned = [d for axis in range(count) for d in (count + 1 + axis, axis)]
    x = n.transpose(x, (count, *turned, *range(2 * count + 1, n.rank(x))))
    whole = [e * b for e, b in zip(extents, block, strict=False)]
    x = n.reshape(x, (n.shape(x)[0], *whole, *extents[count:]))
    cut = np.asarray(n.array(2)).reshape(-1, 2).tolist()
    left = {d + 1: range(a, whole[d] - b) for d, (a, b) in enumerate(cut)}
    return select_ranges(n, x, left)


@tflite_importer("GATHER_ND")
def gather_nd(n: OperatorContext) -> str:
    _moves(n, 0)
    x, indices = n.input(0), n.input(1)
    shape, places = n.shape(x), n.shape(indices)
    table, depth = rows(n, x, places)
    picked = n.op("gather", table, row_places(n, indices, shape[:depth]), axis=0)
    return n.reshape(picked, (*places[:-1], *shape[depth:]))


@tflite_importer("TOPK_V2")
def top_k(n: OperatorContext) -> tuple[str, str]:
    _moves(n, 0)
    x, (count,) = n.input(0), n.ints(1)
    if not 0 < count <= n.shape(x)[-1]:
        raise ModelError(f"k is {count}, but there are {n.shape(x)[-1]} elements")
    values, indices = first(n, x, count, n.rank(x) - 1, largest=True)
    return values, n.cast(indices, n.result(1).dtype)


@tflite_importer("ONE_HOT")
def one_hot(n: OperatorContext) -> str:
    """One value where an index is the position along a new dimension, another elsewhere."""
    axis, (depth,) = n.options("OneHotOptions").Axis(), n.ints(1)
    indices, rank = n.input(0), n.rank(n.input(0)) + 1
    axis %= rank
    n.made(depth)
    column = n.reshape(indices, (*n.shape(indices)[:axis], 1, *n.shape(indices)[axis:]))
    places = np.arange(depth).reshape([-1 if d == axis else 1 for d in range(rank)])
    hit = n.op("eq", column, n.constant(places, n.dtype(column)))
    return n.op("where", hit, n.input(2), n.input(3))


def _moves(n: OperatorContext, position: int) -> None:
    """Raise UnsupportedOpError where bytes would change their steps."""
    tensor = n.tensor(position)
    if tensor.dtype == "int8" or (tensor.dtype == "uint8" and tensor.scales.size):
        same_steps(n, position)
    else:
        n.plain()
