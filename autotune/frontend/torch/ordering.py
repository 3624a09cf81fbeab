"""ATen importers: elements in order; the largest so far; what is in the middle."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.ordering import first
from autotune.frontend.places import elements
from autotune.frontend.torch.context import AtenCall, AtenImporter, aten
from autotune.frontend.views import select_ranges


@aten("topk")
def topk(n: AtenCall) -> tuple[str, str]:
    x, count = n.value("self"), n.integer("k")
    if n.rank(x) == 0 or count == 0 or n.dtype(x) == "bool":
        raise UnsupportedOpError(f"the first {count} of {n.shape(x)} are not supported")
    axis = n.axis("dim", n.rank(x), -1)
    return first(n, x, count, axis, largest=bool(n.arg("largest", True)))


@aten("sort")
def sort(n: AtenCall) -> tuple[str, str]:
    x = n.value("self")
    if n.rank(x) == 0 or 0 in n.shape(x) or n.dtype(x) == "bool":
        raise UnsupportedOpError(f"elements of {n.shape(x)} are not sorted")
    axis = n.axis("dim", n.rank(x), -1)
    return first(n, x, n.shape(x)[axis], axis, largest=bool(n.arg("descending", False)))


# --------------------------------------------------------------------------------- in the middle


@aten("kthvalue")
def kth(n: AtenCall) -> tuple[str, str]:
    x = _some(n)
    return _nth(n, x, n.axis("dim", n.rank(x), -1), n.integer("k") - 1, "keepdim")


@aten("median.dim", "nanmedian.dim")
def median_along(n: AtenCall) -> tuple[str, str]:
    x = _some(n)
    axis = n.axis("dim", n.rank(x), -1)
    return _middle(n, x, axis, keepdims=bool(n.arg("keepdim", False)))


@aten("median.default", "nanmedian.default")
def median(n: AtenCall) -> str:
    x = _some(n)
    flat = n.reshape(x, (math.prod(n.shape(x)),))
    return n.reshape(_middle(n, flat, 0, keepdims=True)[0], ())


def _some(n: AtenCall) -> str:
    x = n.value("self")
    if n.rank(x) == 0 or 0 in n.shape(x) or n.dtype(x) == "bool":
        n.refuse(f"the order of {n.shape(x)}")
    return x


def _middle(n: AtenCall, x: str, axis: int, *, keepdims: bool) -> tuple[str, str]:
    """The lower one of the two in the middle, and its place. NaNs are the largest, and what there
    is where there are some, unless they do not count."""
    extent = n.shape(x)[axis]
    if not n.dtype(x).startswith("float"):
        return _nth(n, x, axis, (extent - 1) // 2, keepdims)
    values, places = first(n, x, extent, axis, largest=False)
    number = n.cast(n.op("eq", values, values), "int64")
    count = n.op("reduce_sum", number, axes=(axis,), keepdims=True)
    one = n.like(1, count)
    if "nanmedian" in str(n.target):
        last = n.op("max", n.op("sub", count, one), n.like(0, count))
        middle = n.op("div", last, n.like(2, count))
    else:
        every = n.op("eq", count, n.like(extent, count))
        nan = n.op("min", count, n.like(extent - 1, count))
        middle = n.op("where", every, n.like((extent - 1) // 2, count), nan)
    found = [elements(n, v, middle, axis) for v in (values, places)]
    return _without(n, found[0], axis, keepdims), _without(n, found[1], axis, keepdims)


def _nth(n: AtenCall, x: str, axis: int, place: int, keepdims: bool | str) -> tuple[str, str]:
    """The element at a place in order, from the smallest on, and where it is."""
    keep = bool(n.arg(keepdims, False)) if isinstance(keepdims, str) else keepdims
    found = [
        select_ranges(n, v, {axis: range(place, place + 1)})
        for v in first(n, x, place + 1, axis, largest=False)
    ]
    return _without(n, found[0], axis, keep), _without(n, found[1], axis, keep)


def _without(n: AtenCall, x: str, axis: int, keepdims: bool) -> str:
    kept = [e for d, e in enumerate(n.shape(x)) if d != axis]
    return x if keepdims else n.reshape(x, kept)


# ------------------------------------------------------------------------------------ so far


def _extreme_so_far(comparison: str) -> AtenImporter:
    """The extreme of the elements up to each one, and the place of the last that is: in rounds
    each sees twice as far back as before (Hillis and Steele 1986). A NaN stays."""

    def run(n: AtenCall) -> tuple[str, str]:
        x = n.value("self")
        if n.rank(x) == 0 or 0 in n.shape(x) or n.dtype(x) == "bool":
            n.refuse(f"extremes along {n.shape(x)}")
        axis, shape = n.axis("dim", n.rank(x)), n.shape(x)
        extent = shape[axis]
        column = [extent if d == axis else 1 for d in range(len(shape))]
        own = n.constant(np.arange(extent, dtype=np.int64).reshape(column))
        place, step = n.expanded(own, shape), 1
        while step < extent:
            back = n.constant(np.maximum(np.arange(extent) - step, 0), "int64")
            before, where = (n.op("gather", v, back, axis=axis) for v in (x, place))
            leads = n.op(comparison, before, x)
            if n.dtype(x).startswith("float"):
                nan = n.op("and", n.op("ne", before, before), n.op("eq", x, x))
                leads = n.op("or", nan, leads)
            x = n.op("where", leads, before, x)
            place = n.op("where", leads, where, place)
            step *= 2
        return x, place

    return run


aten("cummax")(_extreme_so_far("gt"))
aten("cummin")(_extreme_so_far("lt"))


@aten("logcumsumexp")
def log_of_running_sum(n: AtenCall) -> str:
    """In rounds, as the largest so far are found."""
    x = n.value("self")
    if n.rank(x) == 0 or 0 in n.shape(x):
        return x
    axis, shape = n.axis("dim", n.rank(x)), n.shape(x)
    extent, step = shape[axis], 1
    column = [extent if d == axis else 1 for d in range(len(shape))]
    while step < extent:
        back = n.constant(np.maximum(np.arange(extent) - step, 0), "int64")
        none = n.constant((np.arange(extent) < step).reshape(column))
        before = n.op("where", none, n.like(-math.inf, x), n.op("gather", x, back, axis=axis))
        top, gap = n.op("max", x, before), n.op("sub", x, before)
        apart = n.op("softplus", n.op("neg", n.op("abs", gap)))
        same = n.op("and", n.op("eq", x, before), n.op("eq", n.op("abs", x), n.like(math.inf, x)))
        x = n.op("where", same, x, n.op("add", top, apart))
        step *= 2
    return x


# ------------------------------------------------------------------------------------- counted


@aten("histc")
def histogram(n: AtenCall) -> str:
    """How many elements lie in each of bins of one width; those outside count nowhere."""
    x, bins = n.value("self"), n.integer("bins", 100)
    least, most = n.number("min"), n.number("max")
    if least >= most or bins * math.prod(n.shape(x)) > MOST_COUNTED or 0 in n.shape(x):
        n.refuse(f"{bins} bins from {least:g} to {most:g} of {n.shape(x)}")
    flat = n.reshape(x, (1, math.prod(n.shape(x))))
    inside = n.op("and", n.op("ge", flat, n.like(least, flat)),
                  n.op("le", flat, n.like(most, flat)))  # fmt: skip
    share = n.op("mul", n.op("sub", flat, n.like(least, flat)), n.like(bins, flat))
    place = n.op("floor", n.op("div", share, n.like(most - least, flat)))
    place = n.op("min", place, n.like(bins - 1, flat))
    numbers = n.constant(np.arange(bins)[:, None], n.dtype(flat))
    here = n.op("and", n.op("eq", place, numbers), inside)
    count = n.op("reduce_sum", n.cast(here, "float32"), axes=(1,), keepdims=False)
    return n.cast(count, n.made_dtype)


MOST_COUNTED = 1 << 22
"""Elements times bins, beyond which counting one after the other is quicker."""
