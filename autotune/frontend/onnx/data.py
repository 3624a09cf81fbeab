"""ONNX importers: constants, gathers, pads, masks (what makes or moves elements)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.errors import ModelError, UndecidedError, UnsupportedOpError
from autotune.frontend.onnx.context import (
    NodeContext,
    importer,
    tensor_array,
)
from autotune.frontend.views import (
    Elements,
    OpenRange,
    as_range,
    counted_up,
    positive_axis,
    select_ranges,
    triangle,
)
from autotune.shapes import whole
from autotune.sizes import any_size, ceil_div, is_size, surely_at_most
from autotune.types import Array

CONSTANT_TYPES = {
    "value_float": "float32", "value_floats": "float32", "value_int": "int64",
    "value_ints": "int64",
}  # fmt: skip


@importer("Constant")
def constant(n: NodeContext) -> str:
    value = n.tensor("value")
    if value is not None:
        return n.builder.constant(tensor_array(value, "attribute value"), n.outputs[0])
    for name, dtype in CONSTANT_TYPES.items():
        if n.has(name):
            return n.constant(n.attribute(name), dtype)
    raise UnsupportedOpError("only dense numeric constants are supported, not sparse or text ones")


@importer("ConstantOfShape")
def constant_of_shape(n: NodeContext) -> str:
    value = n.tensor("value")
    fill = np.zeros(1, np.float32) if value is None else tensor_array(value, "attribute value")
    shape = n.required_ints(0)
    if any_size(shape):
        return n.op("expand", n.scalar(fill.item(), fill.dtype.name), shape=shape)
    n.made(*shape)
    return n.builder.constant(np.full(shape, fill.ravel()[0], fill.dtype))


@importer("Range")
def range_(n: NodeContext) -> str:
    """One whose length is open is the beginning of the longest, its start added."""
    ends = [_number(n, i) for i in range(3)]
    if any_size(ends):
        return _open_range(n, *ends)
    start, limit, delta = (_required(n, i) for i in range(3))
    n.made(math.ceil((limit.item() - start.item()) / delta.item()))
    array = np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    return n.builder.constant(array)


def _number(n: NodeContext, position: int) -> Any:
    """An input of one element: a number, or a size."""
    amount = n.amount(n.input(position))
    return _required(n, position).item() if amount is None else amount


def _open_range(n: NodeContext, start: Any, limit: Any, delta: Any) -> str:
    """Raises UndecidedError where steps are open, or no whole numbers."""
    parts = any(not is_size(number) and number != int(number) for number in (start, limit, delta))
    if parts or is_size(delta) or not delta:
        raise UndecidedError(f"a range from {start} to {limit} in steps of {delta}")
    first, step = whole(start), int(delta)
    distance = whole(limit) - first
    length = ceil_div(distance if step > 0 else -distance, abs(step))
    return counted_up(n, first, length, step, n.dtype(n.input(0)))


def _required(n: NodeContext, position: int) -> Array:
    n.input(position)
    array = n.parameter(position)
    assert array is not None  # a required input is there
    return array


@importer("Gather")
def gather(n: NodeContext) -> str:
    """Constant indices in a run become a slice, a single one a slice without its axis."""
    x, indices = n.input(0), n.input(1)
    axis = positive_axis(n.integer("axis", 0), n.rank(x))
    extent = n.shape(x)[axis]
    array = n.known(indices)
    if array is None:
        return n.op("gather", x, indices, axis=axis)
    if array.size and not (-extent <= array.min() and array.max() < extent):
        raise ModelError(f"indices reach outside axis {axis} of {n.shape(x)}")
    run: Elements | None
    if is_size(extent) and (array < 0).any():
        if array.size > 1:
            return n.op("gather", x, n.constant(array, "int64"), axis=axis)
        positions, first = array, extent + whole(array.item())
        run = OpenRange(first, first + 1, 1)
    else:
        positions = np.where(array < 0, array + extent, array)
        run = as_range(positions)
    if run is None or n.known(x) is not None:
        return n.op("gather", x, n.constant(positions, "int64"), axis=axis)
    shape = n.shape(x)
    return n.reshape(
        select_ranges(n, x, {axis: run}), (*shape[:axis], *array.shape, *shape[axis + 1 :])
    )


@importer("Pad")
def pad(n: NodeContext) -> str:
    """Constant pads are one op, mirrored and repeated ones another; negative pads cut. Where more
    is wanted than an axis has, it is gathered."""
    x, mode = n.input(0), n.text("mode", "constant")
    rank = n.rank(x)
    before, after, value = _pad_parameters(n, rank)
    if mode == "constant":
        for axis, size in enumerate(n.shape(x)):
            before[axis], after[axis] = _within(size, before[axis], after[axis])
    cuts = {
        a: range(max(-b, 0), n.shape(x)[a] - max(-e, 0))
        for a, (b, e) in enumerate(zip(before, after, strict=True))
        if not (surely_at_most(0, b) and surely_at_most(0, e))
    }
    x = select_ranges(n, x, cuts)
    before, after = [_no_less(b) for b in before], [_no_less(e) for e in after]
    if not any(before) and not any(after):
        return x
    if mode == "constant":
        return n.op("pad", x, pads=(*before, *after), value=value)
    numpy_mode = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}.get(mode)
    if numpy_mode is None:
        raise UnsupportedOpError(f"mode {mode!r} is not supported; use constant, reflect or edge")
    if _has_border(n.shape(x), before, after, mode):
        return n.op("border", x, pads=(*before, *after), mode=mode)
    for axis, (b, e) in enumerate(zip(before, after, strict=True)):
        if b or e:
            places = np.pad(np.arange(n.shape(x)[axis]), (b, e), mode=numpy_mode)  # type: ignore[call-overload]
            x = n.op("gather", x, n.constant(places, "int64"), axis=axis)
    return x


def _within(size: int, before: int, after: int) -> tuple[int, int]:
    """Pads of an axis, of which a cut of more than it has takes from what is put at its other
    end."""
    if any(is_size(extent) for extent in (size, before, after)):
        return before, after
    if before < -size:
        return -size, after + before + size
    return (before + after + size, -size) if after < -size else (before, after)


def _no_less(pads: int) -> int:
    """Pads that are no cuts. Raises UndecidedError where sizes decide whether they are."""
    return pads if surely_at_most(0, pads) else max(pads, 0)


def _has_border(shape: tuple[int, ...], before: list[int], after: list[int], mode: str) -> bool:
    """Whether axes are long enough for one turn of that mode to fill their pads."""
    less = {"reflect": 1, "wrap": 0}.get(mode)
    pads = zip(shape, before, after, strict=True)
    return all(shape) and (
        less is None or all(b <= size - less and e <= size - less for size, b, e in pads)
    )


def _pad_parameters(n: NodeContext, rank: int) -> tuple[list[int], list[int], float]:
    if n.opset < 11:
        pads, value, axes = n.integers("pads") or (), n.number("value", 0.0), None
    else:
        pads, fill, axes = n.required_ints(1), n.parameter(2), n.int_parameter(3)
        value = 0.0 if fill is None or not fill.size else float(fill.item())
    axes = tuple(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise ModelError(f"pads {pads} must have two entries for each of the axes {axes}")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        at = positive_axis(axis, rank)
        before[at], after[at] = pads[i], pads[i + len(axes)]
    return before, after, value


@importer("CenterCropPad")
def center_crop_pad(n: NodeContext) -> str:
    """Axes cut or filled up at both ends, of an odd rest more behind."""
    x, wanted = n.input(0), n.required_ints(1)
    rank, shape = n.rank(x), n.shape(x)
    given = n.integers("axes") or range(rank)
    if min(wanted, default=0) < 0:
        raise ModelError(f"extents must not be negative, got {wanted}")
    pads, cuts = [0] * (2 * rank), {}
    for axis, extent in zip((positive_axis(a, rank) for a in given), wanted, strict=True):
        more = extent - shape[axis]
        if more > 0:
            pads[axis], pads[rank + axis] = more // 2, more - more // 2
        elif more:
            cuts[axis] = range(-more // 2, -more // 2 + extent)
    x = select_ranges(n, x, cuts)
    return n.op("pad", x, pads=tuple(pads), value=0.0) if any(pads) else x


@importer("Trilu")
def trilu(n: NodeContext) -> str:
    x = n.input(0)
    k = n.int_parameter(1)
    offset = k[0] if k else 0
    return triangle(n, x, offset, upper=bool(n.integer("upper", 1)))


@importer("Hardmax")
def hardmax(n: NodeContext) -> str:
    """One where the first largest element is; before opset 13 the axes from `axis` on are one."""
    x = n.input(0)
    shape = n.shape(x)
    axis = positive_axis(n.integer("axis", -1 if n.opset >= 13 else 1), len(shape))
    if n.opset < 13:
        x = n.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    extent = n.shape(x)[axis]
    places = n.reshape(counted_up(n, 0, extent), (extent, *[1] * (n.rank(x) - axis - 1)))
    first = n.op("argmax", x, axis=axis, keepdims=True)
    return n.reshape(n.cast(n.op("eq", first, places), n.dtype(x)), shape)


@importer("OneHot")
def one_hot(n: NodeContext) -> str:
    """where(index == position, on, off) along a new axis; indices outside have no position."""
    indices, values = n.input(0), _required(n, 2)
    depth = n.required_ints(1)[0]
    if depth < 0 or values.size != 2:
        raise ModelError(f"depth is {depth} and there are {values.size} values, expected two")
    rank = n.rank(indices) + 1
    axis = positive_axis(n.integer("axis", -1), rank)
    shape = n.shape(indices)
    column = n.reshape(n.cast(indices, "int64"), (*shape[:axis], 1, *shape[axis:]))
    # A negative index counts from the end.
    negative = n.op("lt", column, n.like(0, column))
    column = n.op("where", negative, n.op("add", column, n.like(depth, column)), column)
    n.made(depth)
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    hit = n.op("eq", column, n.constant(places, "int64"))
    off, on = (n.constant(v, values.dtype.name) for v in values)
    return n.op("where", hit, on, off)
