"""ONNX importers: reductions and argmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autotune.frontend.onnx.context import Importer, NodeContext, importer
from autotune.frontend.ordering import backward
from autotune.frontend.views import log_sum_exp, positive_axis
from autotune.types import highest, lowest

# Operators whose axes came as an input earlier than for the others (opset 18).
AXES_INPUT_SINCE = {"ReduceSum": 13}

NEUTRAL: dict[str, Callable[[str], float]] = {
    "reduce_sum": lambda _: 0.0,
    "reduce_prod": lambda _: 1.0,
    "reduce_mean": lambda dtype: math.nan if dtype.startswith("float") else 0.0,
    "reduce_max": lowest,
    "reduce_min": highest,
}
"""What a reduction of no elements gives, by element type."""
Step = Callable[[NodeContext, str], str]


def _same(_: NodeContext, x: str) -> str:
    return x


def _unary(op: str) -> Step:
    return lambda n, x: n.op(op, x)


def _square(n: NodeContext, x: str) -> str:
    return n.op("mul", x, x)


# ONNX operator -> (before, internal reduction, after)
REDUCTIONS: dict[str, tuple[Step, str, Step]] = {
    "ReduceSum": (_same, "reduce_sum", _same),
    "ReduceMean": (_same, "reduce_mean", _same),
    "ReduceMax": (_same, "reduce_max", _same),
    "ReduceMin": (_same, "reduce_min", _same),
    "ReduceProd": (_same, "reduce_prod", _same),
    "ReduceL1": (_unary("abs"), "reduce_sum", _same),
    "ReduceL2": (_square, "reduce_sum", _unary("sqrt")),
    "ReduceSumSquare": (_square, "reduce_sum", _same),
    "ReduceLogSum": (_same, "reduce_sum", _unary("log")),
}


def _reduction(before: Step, op: str, after: Step) -> Importer:
    def run(n: NodeContext) -> str:
        x = n.input(0)
        keepdims = bool(n.integer("keepdims", 1))
        axes = _axes(n, n.rank(x))
        if after is not _same:
            x = _real(n, x)
        x = before(n, x)
        if not axes:
            return n.cast(after(n, x), n.dtype(n.input(0)))
        if n.dtype(x) == "bool":
            x = n.cast(x, "uint8")
        # Dimensions of one element cost nothing; where none is left there are none for vectors.
        whole = len(axes) == n.rank(x)
        if any(n.shape(x)[a] == 0 for a in axes):
            y = after(n, _of_nothing(n, x, axes, keepdims or whole, NEUTRAL[op](n.dtype(x))))
        else:
            y = after(n, n.op(op, x, axes=axes, keepdims=keepdims or whole))
        y = n.cast(y, n.dtype(n.input(0)))
        return n.reshape(y, ()) if whole and not keepdims else y

    return run


def _of_nothing(
    n: NodeContext, x: str, axes: tuple[int, ...], keepdims: bool, neutral: float
) -> str:
    """What no elements at all give."""
    kept = enumerate(n.shape(x))
    shape = [1 if i in axes else e for i, e in kept if keepdims or i not in axes]
    return n.constant(np.full(shape, neutral), n.dtype(x))


def _axes(n: NodeContext, rank: int) -> tuple[int, ...]:
    """The axes, sorted; all of them where none are given, none where noop_with_empty_axes."""
    since = AXES_INPUT_SINCE.get(n.operator, 18)
    given = n.int_parameter(1) if n.opset >= since else n.integers("axes")
    noop = n.integer("noop_with_empty_axes", 0)
    if not given:
        return () if noop else tuple(range(rank))
    return tuple(sorted({positive_axis(a, rank) for a in given}))


for _operator, _steps in REDUCTIONS.items():
    importer(_operator)(_reduction(*_steps))


@importer("ReduceLogSumExp")
def reduce_log_sum_exp(n: NodeContext) -> str:
    x = _real(n, n.input(0))
    keepdims = bool(n.integer("keepdims", 1))
    axes = _axes(n, n.rank(x))
    if not axes:
        return n.input(0)
    if any(n.shape(x)[a] == 0 for a in axes):
        return n.cast(_of_nothing(n, x, axes, keepdims, -math.inf), n.dtype(n.input(0)))
    y = log_sum_exp(n, x, axes)
    kept = [e for i, e in enumerate(n.shape(y)) if keepdims or i not in axes]
    return n.cast(n.reshape(y, kept), n.dtype(n.input(0)))


def _real(n: NodeContext, x: str) -> str:
    """Integers as real numbers, which have roots and logarithms."""
    return x if n.dtype(x).startswith("float") else n.cast(x, "float64")


@importer("ArgMax")
def arg_max(n: NodeContext) -> str:
    return _arg_max(n, n.input(0))


@importer("ArgMin")
def arg_min(n: NodeContext) -> str:
    return _arg_max(n, backward(n, n.input(0)))


def _arg_max(n: NodeContext, x: str) -> str:
    axis = positive_axis(n.integer("axis", 0), n.rank(x))
    keepdims = bool(n.integer("keepdims", 1))
    if not n.integer("select_last_index", 0):
        return n.op("argmax", x, axis=axis, keepdims=keepdims)
    last = n.shape(x)[axis] - 1
    backward = n.op("gather", x, n.constant(range(last, -1, -1), "int64"), axis=axis)
    first = n.op("argmax", backward, axis=axis, keepdims=keepdims)
    return n.op("sub", n.constant(last, "int64"), first)
