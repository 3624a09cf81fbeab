"""Whole-row operators: softmax, log_softmax, layer_norm, rms_norm, lrn.

Each is a short chain of Computes: reductions over the row, then one pass over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    at,
    axes_of,
    axis_of,
    broadcast_load,
    broadcast_shape,
    float_dtype,
    integer,
    number,
    require,
)
from autotune.ops.base import OPS, OpKind
from autotune.ops.reduce import reduction, split_axes
from autotune.program.ir import Axis, Bound, Compute, Const, Index, Load, Select, Value, fn, index
from autotune.types import Array, Attrs, TensorType


@dataclass(frozen=True, slots=True)
class Softmax:
    """exp(x - max) / sum along `axis`, or its logarithm."""

    name: str
    log: bool
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        float_dtype(self.name, types)
        axis_of(attrs, "axis", -1, len(types[0].shape))
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), out, dtype = inputs[0], output[0], output[1].dtype
        axis = axis_of(attrs, "axis", -1, len(type_.shape))
        outer, inner, point = split_axes(type_.shape, (axis,), False)
        axes = axes_of(type_.shape)
        peak = reduction(f"{out}.max", dtype, (outer, inner), Load(name, point), "peak")
        highest = Load(peak.output, at(outer))
        shifted = fn("sub", Load(name, at(axes)), highest)
        if self.log:
            body = fn("exp", fn("sub", Load(name, point), highest))
            total = reduction(f"{out}.sum", dtype, (outer, inner), body, "sum")
            # One logarithm a row.
            log = Compute(f"{out}.log", dtype, outer, fn("log", Load(total.output, at(outer))))
            last = fn("sub", shifted, Load(log.output, at(outer)))
            return peak, total, log, Compute(out, dtype, axes, last)
        power = Compute(f"{out}.exp", dtype, axes, fn("exp", shifted))
        total = reduction(f"{out}.sum", dtype, (outer, inner), Load(power.output, point), "sum")
        # One division a row: the elements are multiplied.
        share = Compute(
            f"{out}.share", dtype, outer, fn("reciprocal", Load(total.output, at(outer)))
        )
        body = fn("mul", Load(power.output, at(axes)), Load(share.output, at(outer)))
        return peak, power, total, share, Compute(out, dtype, axes, body)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        axis = axis_of(attrs, "axis", -1, x.ndim)
        with np.errstate(invalid="ignore"):  # of a row of -inf
            shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        return np.asarray(shifted - np.log(total) if self.log else np.exp(shifted) / total)


@dataclass(frozen=True, slots=True)
class Norm:
    """Normalization over the dimensions from `axis` on: (x - mean) * rstd * scale + bias.

    rms_norm subtracts no mean and has no bias; layer_norm's bias may be left out. Elements are
    multiplied by `norm_scale` first, which their sums take along in a multiply-add."""

    name: str
    centred: bool
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 2, 3 if self.centred else 2)
        float_dtype(self.name, types)
        x = types[0]
        axis_of(attrs, "axis", -1, len(x.shape))
        shape = broadcast_shape(self.name, [t.shape for t in types])
        require(shape == x.shape, f"{self.name}: scale and bias must broadcast to {x}")
        return x

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), out, dtype = inputs[0], output[0], output[1].dtype
        axis = axis_of(attrs, "axis", -1, len(type_.shape))
        rows = range(axis, len(type_.shape))
        outer, inner, point = split_axes(type_.shape, rows, False)
        axes = axes_of(type_.shape)
        share = Const(1 / math.prod(a.extent for a in inner), dtype)
        epsilon = number(attrs, "epsilon", 1e-5)
        scale = norm_scale(epsilon, dtype)
        stages: list[Compute] = []

        def element(at_: tuple[Index, ...]) -> Value:
            load = Load(name, at_)
            return load if scale == 1 else fn("mul", load, Const(scale, dtype))

        def centre(value: Value) -> Value:
            return fn("sub", value, Load(f"{out}.mean", at(outer))) if self.centred else value

        if self.centred:
            total = reduction(f"{out}.sum", dtype, (outer, inner), element(point), "sum")
            mean = fn("mul", Load(total.output, at(outer)), share)
            stages += [total, Compute(f"{out}.mean", dtype, outer, mean)]
        apart = centre(element(point))
        stages.append(
            reduction(f"{out}.sq", dtype, (outer, inner), fn("mul", apart, apart), "sum")
        )
        variance = fn("mul", Load(f"{out}.sq", at(outer)), share)
        inverse = fn("rsqrt", fn("add", variance, Const(epsilon * scale**2, dtype)))
        stages.append(Compute(f"{out}.rstd", dtype, outer, inverse))
        body = fn("mul", centre(element(at(axes))), Load(f"{out}.rstd", at(outer)))
        for function, (operand, t) in zip(("mul", "add"), inputs[1:], strict=False):
            body = fn(function, body, broadcast_load(operand, t.shape, axes))
        return (*stages, Compute(out, dtype, axes, body))

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, scale, *bias = arrays
        axes = tuple(range(axis_of(attrs, "axis", -1, x.ndim), x.ndim))
        step = norm_scale(number(attrs, "epsilon", 1e-5), x.dtype.name)
        x = x * x.dtype.type(step)
        apart = x - x.mean(axis=axes, keepdims=True) if self.centred else x
        variance = (apart * apart).mean(axis=axes, keepdims=True)
        epsilon = x.dtype.type(number(attrs, "epsilon", 1e-5) * step**2)
        out = apart / np.sqrt(variance + epsilon) * scale
        return np.asarray(out + bias[0] if bias else out)


def norm_scale(epsilon: float, dtype: str) -> float:
    """A power of two that keeps squares of large float32 elements finite: 2**-47, or more where
    epsilon is so small that its product with the square would come near to a denormal number,
    which counts as zero: squares of less than 2**-12 of epsilon vanish, too small to count beside
    it. Rows of 4096 elements of 1e30 are normalized with an epsilon of at least 1e-9, of 4e28 with
    one of 1e-12, and what is much larger is not: squares beside both it and epsilon would need a
    scale of each row's own, another pass over its elements. With an epsilon of 0 nothing is
    scaled."""
    if dtype != "float32" or epsilon <= 0:
        return 1.0
    return 2.0 ** -max(0, min(47, math.floor((math.log2(epsilon) + 114) / 2)))


class Lrn:
    """Local response normalization over the last dimension:
    x / (bias + alpha/size * sum of squares of `size` neighbours) ** beta."""

    name = "lrn"
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        float_dtype(self.name, types)
        size = integer(attrs, "size")
        require(size > 0 and len(types[0].shape) > 0, f"lrn: cannot use size {size} on {types[0]}")
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), out, dtype = inputs[0], output[0], output[1].dtype
        size = integer(attrs, "size")
        axes = axes_of(type_.shape)
        channel = index(axes[-1].name) + index("r") - (size - 1) // 2
        near = Load(name, (*at(axes[:-1]), channel))
        square = Select(
            (Bound(channel, 0, type_.shape[-1]),), fn("mul", near, near), Const(0.0, dtype)
        )
        total = reduction(f"{out}.sum", dtype, (axes, (Axis("r", size),)), square, "sum")
        alpha, beta, bias = _lrn_numbers(attrs)
        scaled = fn("mul", Load(total.output, at(axes)), Const(alpha / size, dtype))
        base = fn("add", scaled, Const(bias, dtype))
        body = _over_power(Load(name, at(axes)), base, beta, dtype)
        return total, Compute(out, dtype, axes, body)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        size = integer(attrs, "size")
        before = (size - 1) // 2
        pads = [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)]
        squares = np.pad(x * x, pads)
        channels = x.shape[-1]
        total = np.sum([squares[..., k : k + channels] for k in range(size)], axis=0)
        alpha, beta, bias = _lrn_numbers(attrs)
        return np.asarray(x / (bias + alpha / size * total) ** beta)


def _lrn_numbers(attrs: Attrs) -> tuple[float, float, float]:
    return number(attrs, "alpha", 1e-4), number(attrs, "beta", 0.75), number(attrs, "bias", 1.0)


def _over_power(value: Value, base: Value, exponent: float, dtype: str) -> Value:
    """value / base ** exponent; the usual exponents by reciprocal roots, far cheaper than pow."""
    root = fn("rsqrt", base)
    if exponent == 0.75:  # one root on each of the units that have them
        return fn("mul", value, fn("mul", root, fn("sqrt", root)))
    if exponent == 0.5:
        return fn("mul", value, root)
    below = base if exponent == 1.0 else fn("pow", base, Const(exponent, dtype))
    return fn("div", value, below)


for _op in (
    Softmax("softmax", log=False),
    Softmax("log_softmax", log=True),
    Norm("layer_norm", centred=True),
    Norm("rms_norm", centred=False),
    Lrn(),
):
    OPS.add(_op.name, _op)
