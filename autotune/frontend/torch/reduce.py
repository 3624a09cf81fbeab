"""ATen importers: reductions, places of largest elements, running sums."""

from __future__ import annotations

import math

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, AtenImporter, aten
from autotune.frontend.views import log_sum_exp, select_ranges


def reduced(n: AtenCall, op: str, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    """A reduction over axes, none of which is empty. Dimensions of one element cost nothing; where
    none would be left there were none for vectors."""
    if n.rank(x) == 0 or not axes:
        return x
    whole = len(axes) == n.rank(x)
    y = n.op(op, x, axes=axes, keepdims=keepdims or whole)
    return n.reshape(y, ()) if whole and not keepdims else y


def _axes(n: AtenCall, x: str) -> tuple[tuple[int, ...], bool]:
    keepdims = bool(n.arg("keepdim", False)) if n.has("keepdim") else False
    return n.axes("dim", n.rank(x)), keepdims


def _empty(n: AtenCall, x: str, axes: tuple[int, ...]) -> bool:
    return any(n.shape(x)[a] == 0 for a in axes)


def _total(op: str, neutral: int) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.as_made("self")
        axes, keepdims = _axes(n, x)
        if 0 in n.shape(x):
            return n.expanded(n.constant(neutral, n.made_dtype), n.made_shape)
        return reduced(n, op, x, axes, keepdims)

    return run


aten("sum")(_total("reduce_sum", 0))
aten("prod")(_total("reduce_prod", 1))


@aten("mean")
def mean(n: AtenCall) -> str:
    x = n.as_made("self")
    axes, keepdims = _axes(n, x)
    if _empty(n, x, axes):
        return n.expanded(n.constant(math.nan, n.made_dtype), n.made_shape)
    return reduced(n, "reduce_mean", x, axes, keepdims)


def _extreme(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.value("self")
        axes, keepdims = _axes(n, x)
        narrow = n.dtype(x) == "bool"
        y = reduced(n, op, n.cast(x, "uint8") if narrow else x, axes, keepdims)
        return n.cast(y, "bool") if narrow else y

    return run


for _name, _op in {"amax": "reduce_max", "amin": "reduce_min"}.items():
    aten(_name)(_extreme(_op))
for _name, _op in {"max.default": "reduce_max", "min.default": "reduce_min"}.items():
    aten(_name)(_extreme(_op))


@aten("max.other")
def larger(n: AtenCall) -> str:
    return n.op("max", n.as_made("self"), n.as_made("other"))


@aten("min.other")
def smaller(n: AtenCall) -> str:
    return n.op("min", n.as_made("self"), n.as_made("other"))


@aten("max.dim")
def largest_along(n: AtenCall) -> tuple[str, str]:
    return _extreme("reduce_max")(n), place(n, n.value("self"), largest=True)  # type: ignore[return-value]


@aten("min.dim")
def smallest_along(n: AtenCall) -> tuple[str, str]:
    return _extreme("reduce_min")(n), place(n, n.value("self"), largest=False)  # type: ignore[return-value]


@aten("argmax")
def argmax(n: AtenCall) -> str:
    return place(n, n.value("self"), largest=True)


@aten("argmin")
def argmin(n: AtenCall) -> str:
    return place(n, n.value("self"), largest=False)


def place(n: AtenCall, x: str, *, largest: bool) -> str:
    """Place of the first extreme element, along a dimension or of all."""
    keepdims = bool(n.arg("keepdim", False)) if n.has("keepdim") else False
    if n.dtype(x) == "bool":
        x = n.cast(x, "uint8")
    dim = n.arg("dim")
    if n.rank(x) == 0:
        return n.expanded(n.constant(0, "int64"), ())
    axis = 0 if dim is None else int(dim) % n.rank(x)
    flat = n.reshape(x, (math.prod(n.shape(x)),)) if dim is None else x
    if not largest:
        # The least integer has no negative: counted down from the greatest.
        top = 255 if n.dtype(flat) == "uint8" else -1
        real = n.dtype(flat).startswith("float")
        flat = n.op("neg", flat) if real else n.op("sub", n.like(top, flat), flat)
    y = n.op("argmax", flat, axis=axis, keepdims=True)
    kept = [e for d, e in enumerate(n.shape(y)) if d != axis or (keepdims and dim is not None)]
    y = n.reshape(y, kept)
    return n.reshape(y, [1] * n.rank(x)) if keepdims and dim is None else y


def _logical(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.in_type("self", "bool")
        axes, keepdims = _axes(n, x)
        # The largest of a row of bytes is found without vectors, of words with them.
        x = n.cast(x, "int32" if n.rank(x) - 1 in axes else "uint8")
        if _empty(n, x, axes) or 0 in n.shape(x):
            return n.expanded(n.constant(op == "reduce_min", "bool"), n.made_shape)
        return n.cast(reduced(n, op, x, axes, keepdims), n.made_dtype)

    return run


aten("any")(_logical("reduce_max"))
aten("all")(_logical("reduce_min"))


@aten("var", "std")
def variance(n: AtenCall) -> str:
    spread = _moments(n)[0]
    return n.op("sqrt", spread) if "std" in str(n.target) else spread


@aten("var_mean", "std_mean")
def variance_and_mean(n: AtenCall) -> tuple[str, str]:
    spread, mean = _moments(n)
    return (n.op("sqrt", spread) if "std" in str(n.target) else spread), mean


def _moments(n: AtenCall) -> tuple[str, str]:
    """(variance, mean); the sum of squares is divided by their number less the correction."""
    x = n.value("self")
    axes, keepdims = _axes(n, x)
    correction: float = 1.0
    if n.has("correction"):
        correction = n.number("correction", 1)
    elif n.has("unbiased"):
        correction = float(bool(n.arg("unbiased", True)))
    count = math.prod(n.shape(x)[a] for a in axes)
    if count == 0:
        raise UnsupportedOpError("nothing has no variance")
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True) if n.rank(x) else x
    centred = n.op("sub", x, mean)
    squares = n.op("mul", centred, centred)
    total = n.op("reduce_sum", squares, axes=axes, keepdims=True) if n.rank(x) else squares
    left = count - correction
    factor = 1 / left if left > 0 else (math.inf if left == 0 else math.nan)
    if left <= 0:
        spread = n.op("mul", total, n.like(math.inf, total))
    else:
        spread = n.op("mul", total, n.like(factor, total))
    kept = [1 if d in axes else e for d, e in enumerate(n.shape(x)) if keepdims or d not in axes]
    return n.reshape(spread, kept), n.reshape(mean, kept)


@aten("logsumexp")
def logsumexp(n: AtenCall) -> str:
    x = n.as_made("self")
    axes, _ = _axes(n, x)
    return n.reshape(log_sum_exp(n, x, axes), n.made_shape)


@aten("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar")
def vector_norm(n: AtenCall) -> str:
    x = n.as_made("self")
    order = n.number("ord" if n.has("ord") else "p", 2)
    axes = n.axes("dim", n.rank(x))
    if order == 2:
        total = reduced(n, "reduce_sum", n.op("mul", x, x), axes, True)
        return n.reshape(n.op("sqrt", total), n.made_shape)
    if abs(order) == math.inf:
        op = "reduce_max" if order > 0 else "reduce_min"
        return n.reshape(reduced(n, op, n.op("abs", x), axes, True), n.made_shape)
    powers = n.op("abs", x)
    if order == 0:
        powers = n.cast(n.op("ne", x, n.like(0, x)), n.dtype(x))
    elif order != 1:
        powers = n.op("pow", powers, n.like(order, x))
    total = reduced(n, "reduce_sum", powers, axes, True)
    total = total if order in (0, 1) else n.op("pow", total, n.like(1 / order, x))
    return n.reshape(total, n.made_shape)


def _scan(combine: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.as_made("self")
        if n.rank(x) == 0 or 0 in n.shape(x):
            return x
        shape = n.shape(x)
        axis = n.axis("dim", len(shape))
        wide = n.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
        return n.reshape(n.op("scan", wide, combine=combine, exclusive=0, reverse=0), shape)

    return run


aten("cumsum")(_scan("sum"))
aten("cumprod")(_scan("prod"))


@aten("diff")
def difference(n: AtenCall) -> str:
    x = n.value("self")
    axis, extent = n.axis("dim", n.rank(x), -1), n.shape(x)[n.axis("dim", n.rank(x), -1)]
    if n.integer("n", 1) != 1 or n.optional("prepend") or n.optional("append"):
        raise UnsupportedOpError("only first differences are supported")
    later = select_ranges(n, x, {axis: range(1, extent)})
    return n.op("sub", later, select_ranges(n, x, {axis: range(extent - 1)}))
