"""ATen importers: shapes and views, and what makes tensors of others' elements."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.torch.order import memory_order
from autotune.frontend.views import select_ranges, triangle


@aten(
    "view.default", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten",
    "_unsafe_reshape", "view_copy.default", "squeeze_copy", "unsqueeze_copy", "unflatten",
)  # fmt: skip
def reshape(n: AtenCall) -> str:
    return n.reshape(n.value("self"), n.made_shape)


@aten("permute", "permute_copy")
def permute(n: AtenCall) -> str:
    x = n.value("self")
    return n.transpose(x, [d % n.rank(x) for d in n.integers("dims")])


@aten("t", "t_copy", "numpy_T")
def transpose_all(n: AtenCall) -> str:
    x = n.value("self")
    return n.transpose(x, tuple(reversed(range(n.rank(x)))))


@aten("transpose", "transpose_copy", "swapaxes", "swapdims")
def transpose(n: AtenCall) -> str:
    x = n.value("self")
    one, other = (n.axis(name, n.rank(x)) for name in ("dim0", "dim1"))
    order = list(range(n.rank(x)))
    if order:
        order[one], order[other] = order[other], order[one]
    return n.transpose(x, order)


@aten("expand", "expand_copy", "broadcast_to", "expand_as")
def expand(n: AtenCall) -> str:
    return n.expanded(n.value("self"), n.made_shape)


@aten("repeat")
def repeat(n: AtenCall) -> str:
    """Every dimension d becomes [repeat, d], and the pair is merged."""
    x, repeats = n.value("self"), n.integers("repeats")
    extents = (1,) * (len(repeats) - n.rank(x)) + n.shape(x)
    apart = [e for extent in extents for e in (1, extent)]
    repeated = [e for pair in zip(repeats, extents, strict=True) for e in pair]
    return n.reshape(n.expanded(n.reshape(x, apart), repeated), n.made_shape)


@aten("slice", "slice_copy")
def slice_(n: AtenCall) -> str:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x))
    start, end, step = n.arg("start"), n.arg("end"), n.integer("step", 1)
    return select_ranges(n, x, {axis: range(*slice(start, end, step).indices(n.shape(x)[axis]))})


@aten("select", "select_copy")
def select(n: AtenCall) -> str:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x))
    place = n.integer("index") % n.shape(x)[axis]
    return n.reshape(select_ranges(n, x, {axis: range(place, place + 1)}), n.made_shape)


@aten("narrow", "narrow_copy")
def narrow(n: AtenCall) -> str:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x))
    start = n.integer("start") % max(n.shape(x)[axis], 1)
    return select_ranges(n, x, {axis: range(start, start + n.integer("length"))})


@aten("split", "split_with_sizes", "chunk", "split_copy", "split_with_sizes_copy", "unsafe_split")
def split(n: AtenCall) -> tuple[str, ...]:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x))
    parts, start = [], 0
    for made in n.result:
        size = int(made.shape[axis])
        parts.append(select_ranges(n, x, {axis: range(start, start + size)}))
        start += size
    return tuple(parts)


@aten("unbind", "unbind_copy")
def unbind(n: AtenCall) -> tuple[str, ...]:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x))
    rest = [e for d, e in enumerate(n.shape(x)) if d != axis]
    return tuple(
        n.reshape(select_ranges(n, x, {axis: range(place, place + 1)}), rest)
        for place in range(n.shape(x)[axis])
    )


@aten("cat", "concat")
def cat(n: AtenCall) -> str:
    """Empty tensors of one dimension, which fit everything, are left out."""
    values = [n.cast(v, n.made_dtype) for v in n.values("tensors") if n.shape(v) != (0,)]
    if not values:
        return n.expanded(n.constant(0, n.made_dtype), n.made_shape)
    axis = n.axis("dim", n.rank(values[0]))
    return values[0] if len(values) == 1 else n.op("concat", *values, axis=axis)


@aten("stack")
def stack(n: AtenCall) -> str:
    values = [n.cast(v, n.made_dtype) for v in n.values("tensors")]
    axis = n.axis("dim", len(n.made_shape))
    apart = [n.reshape(v, (*n.shape(v)[:axis], 1, *n.shape(v)[axis:])) for v in values]
    return apart[0] if len(apart) == 1 else n.op("concat", *apart, axis=axis)


@aten("flip")
def flip(n: AtenCall) -> str:
    x = n.value("self")
    backward = {a: range(n.shape(x)[a] - 1, -1, -1) for a in n.axes("dims", n.rank(x))}
    return select_ranges(n, x, backward) if n.arg("dims") else x


@aten("roll")
def roll(n: AtenCall) -> str:
    x, shifts = n.value("self"), n.integers("shifts")
    dims = n.integers("dims")
    if not dims:
        flat = n.reshape(x, (math.prod(n.shape(x)),))
        return n.reshape(_rolled(n, flat, 0, shifts[0]), n.shape(x))
    for axis, shift in zip(dims, shifts, strict=True):
        x = _rolled(n, x, axis % n.rank(x), shift)
    return x


def _rolled(n: AtenCall, x: str, axis: int, shift: int) -> str:
    """The last elements of an axis come before the others."""
    extent = n.shape(x)[axis]
    first = extent - shift % extent if extent else 0
    if first in (0, extent):
        return x
    ends = (range(first, extent), range(first))
    return n.op("concat", *(select_ranges(n, x, {axis: end}) for end in ends), axis=axis)


@aten("constant_pad_nd", "pad")
def constant_pad(n: AtenCall) -> str:
    """Pairs of (before, after) from the last dimension on; negative ones cut."""
    x, given, rank = n.value("self"), n.integers("pad"), len(n.made_shape)
    if n.has("mode") and n.arg("mode", "constant") != "constant":
        raise UnsupportedOpError(f"mode {n.arg('mode')!r} is not supported")
    before, after = [0] * rank, [0] * rank
    for place in range(len(given) // 2):
        before[rank - 1 - place], after[rank - 1 - place] = given[2 * place : 2 * place + 2]
    if not any(before) and not any(after):
        return x
    if n.dtype(x) == "bool":
        wide = n.op("pad", n.cast(x, "uint8"), pads=(*before, *after), value=n.number("value"))
        return n.cast(wide, "bool")
    return n.op("pad", x, pads=(*before, *after), value=n.number("value"))


@aten(
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d",
)  # fmt: skip
def border_pad(n: AtenCall) -> str:
    x, given, rank = n.value("self"), n.integers("padding"), len(n.made_shape)
    mode = "reflect" if "reflection" in str(n.target) else "edge"
    before, after = [0] * rank, [0] * rank
    for place in range(len(given) // 2):
        before[rank - 1 - place], after[rank - 1 - place] = given[2 * place : 2 * place + 2]
    if min((*before, *after)) < 0:
        raise UnsupportedOpError("negative pads are not supported")
    return n.op("border", x, pads=(*before, *after), mode=mode)


@aten("diagonal", "diagonal_copy")
def diagonal(n: AtenCall) -> str:
    x, offset = n.value("self"), n.integer("offset")
    one, other = (n.axis(name, n.rank(x)) for name in ("dim1", "dim2"))
    order = [d for d in range(n.rank(x)) if d not in (one, other)] + [one, other]
    moved = n.transpose(x, order)
    *rest, rows, columns = n.shape(moved)
    count = n.made_shape[-1]
    first = offset if offset >= 0 else -offset * columns
    places = first + np.arange(count) * (columns + 1)
    flat = n.reshape(moved, (*rest, rows * columns))
    return n.op("gather", flat, n.constant(places, "int64"), axis=len(rest))


@aten("unfold", "unfold_copy")
def unfold(n: AtenCall) -> str:
    """Windows along a dimension; what lies in one comes last."""
    x = n.value("self")
    axis, size, step = n.axis("dimension", n.rank(x)), n.integer("size"), n.integer("step")
    count = n.made_shape[axis]
    places = np.arange(count)[:, None] * step + np.arange(size)
    y = n.op("gather", x, n.constant(places, "int64"), axis=axis)
    order = [d for d in range(n.rank(y)) if d != axis + 1] + [axis + 1]
    return n.transpose(y, order)


@aten("as_strided", "as_strided_copy")
def as_strided(n: AtenCall) -> str:
    """Elements by their places in memory, of a tensor that lies there without gaps."""
    x, given = n.value("self"), n.first_tensor()
    shape, strides = n.integers("size"), n.integers("stride")
    order = memory_order(given)
    stored = given.permute(order)
    start = n.integer("storage_offset", int(given.storage_offset()))
    if not stored.is_contiguous() or given.storage_offset():
        raise UnsupportedOpError("a part of another tensor's memory is not supported")
    n.made(*shape)
    places = np.full(shape, start, np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(extent) * stride
        places += steps.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    # The tensor's own elements, for its places: what is only turned is a transposition.
    own = np.arange(given.numel()).reshape(stored.shape)
    back = np.argsort(order)
    if shape == n.shape(x) and np.array_equal(places, own.transpose(back)):
        return x
    flat = n.reshape(n.transpose(x, order), (given.numel(),))
    if places.size and not 0 <= places.min() <= places.max() < given.numel():
        raise UnsupportedOpError("it reads memory beside the tensor")
    if np.array_equal(places.ravel(), np.arange(given.numel())):
        return n.reshape(flat, shape)
    return n.op("gather", flat, n.constant(places, "int64"), axis=0)


@aten("slice_scatter", "select_scatter")
def put_range(n: AtenCall) -> str:
    """x where a range of an axis is another tensor."""
    x, given = n.value("self"), n.as_made("src")
    axis = n.axis("dim", n.rank(x))
    extent = n.shape(x)[axis]
    if n.has("index"):
        place = n.integer("index") % extent
        chosen = range(place, place + 1)
        given = n.reshape(given, [1 if d == axis else e for d, e in enumerate(n.shape(x))])
    else:
        chosen = range(*slice(n.arg("start"), n.arg("end"), n.integer("step", 1)).indices(extent))
    given = n.expanded(given, [len(chosen) if d == axis else e for d, e in enumerate(n.shape(x))])
    if not chosen:
        return x
    if chosen.step != 1:
        source = np.arange(extent)
        source[np.array(chosen)] = extent + np.arange(len(chosen))
        both = n.op("concat", x, given, axis=axis)
        return n.op("gather", both, n.constant(source, "int64"), axis=axis)
    parts = [range(chosen.start), range(chosen.stop, extent)]
    left, right = ([select_ranges(n, x, {axis: r})] if len(r) else [] for r in parts)
    joined = [*left, given, *right]
    return given if len(joined) == 1 else n.op("concat", *joined, axis=axis)


@aten("tril", "triu")
def tril(n: AtenCall) -> str:
    upper = "triu" in str(n.target)
    return triangle(n, n.value("self"), n.integer("diagonal"), upper=upper)


@aten("pixel_shuffle")
def pixel_shuffle(n: AtenCall) -> str:
    x, block = n.value("self"), n.integer("upscale_factor")
    *outer, channels, height, width = n.shape(x)
    batch, out = math.prod(outer), channels // (block * block)
    x = n.reshape(x, (batch, out, block, block, height, width))
    return n.reshape(n.transpose(x, (0, 1, 4, 2, 5, 3)), n.made_shape)


@aten("pixel_unshuffle")
def pixel_unshuffle(n: AtenCall) -> str:
    x, block = n.value("self"), n.integer("downscale_factor")
    *outer, channels, height, width = n.shape(x)
    x = n.reshape(x, (math.prod(outer), channels, height // block, block, width // block, block))
    return n.reshape(n.transpose(x, (0, 1, 3, 5, 2, 4)), n.made_shape)
