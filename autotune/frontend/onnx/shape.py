"""ONNX importers: shapes and views (what moves no element or only selects)."""

from __future__ import annotations

import itertools
import math

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import (
    Elements,
    OpenRange,
    different_axes,
    expand_to,
    positive_axis,
    select_ranges,
)
from autotune.shapes import broadcast_shapes
from autotune.sizes import any_size, ceil_div, surely_at_most, surely_less


@importer("Shape")
def shape(n: NodeContext) -> str:
    extents = n.shape(n.input(0))
    end = n.integer("end", len(extents))
    return n.constant(extents[n.integer("start", 0) : end], "int64")


@importer("Size")
def size(n: NodeContext) -> str:
    return n.constant(math.prod(n.shape(n.input(0))), "int64")


@importer("Reshape")
def reshape(n: NodeContext) -> str:
    """0 keeps a dimension (unless allowzero), -1 is what is left."""
    x, wanted = n.input(0), list(n.required_ints(1))
    extents = n.shape(x)
    if not n.integer("allowzero", 0):
        for i, extent in enumerate(wanted):
            if extent == 0 and i >= len(extents):
                raise ModelError(f"shape {wanted} keeps dimension {i} of {extents}")
            wanted[i] = extents[i] if extent == 0 else extent
    if wanted.count(-1) > 1 or any(surely_less(e, -1) for e in wanted):
        raise ModelError(f"shape {wanted} must have at most one -1 and no other negatives")
    total, known = math.prod(extents), math.prod(e for e in wanted if e != -1)
    wanted = [total // (known or 1) if e == -1 else e for e in wanted]
    if math.prod(wanted) != total:
        raise ModelError(f"cannot reshape {extents} to {tuple(wanted)}: the sizes differ")
    return n.reshape(x, wanted)


@importer("Flatten")
def flatten(n: NodeContext) -> str:
    x = n.input(0)
    extents, axis = n.shape(x), n.integer("axis", 1)
    if not -len(extents) <= axis <= max(len(extents), 1):
        raise ModelError(f"axis {axis} is outside a tensor of rank {len(extents)}")
    axis = axis + len(extents) if axis < 0 else axis
    return n.reshape(x, (math.prod(extents[:axis]), math.prod(extents[axis:])))


@importer("Squeeze")
def squeeze(n: NodeContext) -> str:
    x = n.input(0)
    extents = n.shape(x)
    given = n.int_parameter(1) if n.opset >= 13 else n.integers("axes")
    if given is None:
        axes = {i for i, e in enumerate(extents) if e == 1}
    else:
        axes = {positive_axis(a, len(extents)) for a in given}
    if any(extents[a] != 1 for a in axes):
        raise ModelError(f"axes {sorted(axes)} of {extents} must have extent 1")
    return n.reshape(x, [e for i, e in enumerate(extents) if i not in axes])


@importer("Unsqueeze")
def unsqueeze(n: NodeContext) -> str:
    x = n.input(0)
    given = n.required_ints(1) if n.opset >= 13 else n.integers("axes") or ()
    rank = n.rank(x) + len(given)
    axes = different_axes(given, rank)
    extents = iter(n.shape(x))
    return n.reshape(x, [1 if i in axes else next(extents) for i in range(rank)])


@importer("Transpose")
def transpose(n: NodeContext) -> str:
    x = n.input(0)
    rank = n.rank(x)
    order = n.integers("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise ModelError(f"perm {order} is no order of {rank} dimensions")
    return n.transpose(x, order)


@importer("Concat")
def concat(n: NodeContext) -> str:
    values = n.rest()
    axis = positive_axis(n.integer("axis", 1), n.rank(values[0]))
    return values[0] if len(values) == 1 else n.op("concat", *values, axis=axis)


@importer("Slice")
def slice_(n: NodeContext) -> str:
    x = n.input(0)
    if n.opset < 10:
        starts, ends = n.integers("starts") or (), n.integers("ends") or ()
        axes, steps = n.integers("axes"), None
    else:
        starts, ends = n.required_ints(1), n.required_ints(2)
        axes, steps = n.int_parameter(3), n.int_parameter(4)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    different_axes(axes, n.rank(x))
    ranges: dict[int, Elements] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = positive_axis(axis, n.rank(x))
        ranges[at] = _clamped(start, end, step, n.shape(x)[at])
    return select_ranges(n, x, ranges)


def _clamped(start: int, end: int, step: int, extent: int) -> Elements:
    """The elements of an axis. Backward from before the first element is from the first one, where
    Python has none."""
    if any_size((start, end, extent)) and step > 0:
        return OpenRange(_limited(start, extent), _limited(end, extent), step)
    if any_size((start, end, extent)):
        return _backward(start, end, step, extent)
    if step < 0 and start + extent < 0:
        start = 0
    return range(*slice(start, end, step).indices(extent))


def _backward(start: int, end: int, step: int, extent: int) -> OpenRange:
    """Raises UndecidedError where sizes decide which element is the first or the last."""
    first = start + extent if surely_less(start, 0) else start
    first = extent - 1 if surely_less(extent - 1, first) else min(max(first, 0), extent - 1)
    stop = end + extent if surely_less(end, 0) else end
    stop = -1 if surely_less(stop, 0) else stop
    return OpenRange(first, min(first, stop), step)


def _limited(place: int, extent: int) -> int:
    """As Python's slices have it: from the end where it is negative, and not beyond an end. Raises
    UndecidedError where sizes decide which."""
    from_start = place + extent if place < 0 else place
    if not surely_at_most(0, from_start):
        from_start = max(0, from_start)
    return extent if surely_at_most(extent, from_start) else min(from_start, extent)


@importer("Split")
def split(n: NodeContext) -> tuple[str, ...]:
    x = n.input(0)
    axis = positive_axis(n.integer("axis", 0), n.rank(x))
    total, count = n.shape(x)[axis], len(n.outputs)
    sizes = n.int_parameter(1) if n.opset >= 13 else n.integers("split")
    n.ignore("num_outputs")  # always the number of outputs
    if sizes is None:
        chunk = ceil_div(total, count)
        sizes = tuple(min(chunk, total - i * chunk) for i in range(count))
    if sum(sizes) != total or len(sizes) != count or min(sizes) < 0:
        raise ModelError(f"sizes {sizes} do not split an axis of {total} into {count} parts")
    ends = itertools.accumulate(sizes)
    return tuple(
        select_ranges(n, x, {axis: OpenRange(end - size, end, 1)})
        for end, size in zip(ends, sizes, strict=True)
    )


@importer("Expand")
def expand(n: NodeContext) -> str:
    x = n.input(0)
    return expand_to(n, x, broadcast_shapes((n.shape(x), n.required_ints(1))))


@importer("Tile")
def tile(n: NodeContext) -> str:
    """Every dimension d becomes [repeat, d], and the pair is merged."""
    x, repeats = n.input(0), n.required_ints(1)
    extents = n.shape(x)
    if len(repeats) != len(extents):
        raise ModelError(f"repeats {repeats} do not fit a tensor of shape {extents}")
    apart = [e for extent in extents for e in (1, extent)]
    repeated = [e for pair in zip(repeats, extents, strict=True) for e in pair]
    x = expand_to(n, n.reshape(x, apart), repeated)
    return n.reshape(x, [r * e for r, e in zip(repeats, extents, strict=True)])


@importer("DepthToSpace")
def depth_to_space(n: NodeContext) -> str:
    x, block = n.input(0), n.integer("blocksize", 1)
    mode = n.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise UnsupportedOpError(f"mode must be DCR or CRD, got {mode!r}")
    batch, channels, height, width = n.shape(x)
    out = channels // (block * block)
    if mode == "DCR":
        x, perm = n.reshape(x, (batch, block, block, out, height, width)), (0, 3, 4, 1, 5, 2)
    else:
        x, perm = n.reshape(x, (batch, out, block, block, height, width)), (0, 1, 4, 2, 5, 3)
    return n.reshape(n.transpose(x, perm), (batch, out, height * block, width * block))


@importer("SpaceToDepth")
def space_to_depth(n: NodeContext) -> str:
    x, block = n.input(0), n.integer("blocksize", 1)
    mode = n.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise UnsupportedOpError(f"mode must be DCR or CRD, got {mode!r}")
    batch, channels, height, width = n.shape(x)
    rows, columns = height // block, width // block
    x = n.reshape(x, (batch, channels, rows, block, columns, block))
    x = n.transpose(x, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return n.reshape(x, (batch, channels * block * block, rows, columns))
