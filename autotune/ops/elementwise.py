"""Element functions as ops: every name of `program.ir.FUNCTIONS`, activations, scalar, expand.

Inputs broadcast as in numpy. Comparisons give bool; inputs of one op have one dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    axes_of,
    broadcast_load,
    broadcast_shape,
    const,
    integers,
    is_float,
    number,
    require,
    same_dtype,
    text,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.functions import apply_function
from autotune.program.ir import (
    COMPARISONS,
    FUNCTIONS,
    Compute,
    Const,
    Index,
    IndexValue,
    Value,
    fn,
)
from autotune.shapes import broadcast_shapes
from autotune.sizes import is_size
from autotune.types import DTYPES, Array, Attrs, TensorType

_BITS = ("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right")
_LOGICAL = ("and", "or", "not")
_FLOATS = (
    "sqrt", "rsqrt", "exp", "log", "erf", "tanh", "sigmoid", "sin", "cos", "reciprocal", "floor",
    "ceil", "round", "expm1", "sinh", "cosh", "tan", "asin", "acos", "atan", "asinh", "acosh",
    "atanh", "softplus", "mish", "silu", "swish", "gelu_erf", "gelu_tanh",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """An element function as an op of the same name."""

    name: str
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, FUNCTIONS[self.name])
        shape = broadcast_shape(self.name, [t.shape for t in types])
        if self.name.startswith("to_"):
            return TensorType(dtype=self.name.removeprefix("to_"), shape=shape)
        if self.name == "where":
            require(types[0].dtype == "bool", f"where: condition must be bool, got {types[0]}")
            return TensorType(dtype=same_dtype(self.name, types[1:]), shape=shape)
        dtype = same_dtype(self.name, types)
        if self.name in ("bits", "binade"):
            require(dtype == "float32", f"{self.name}: input must be float32, got {dtype}")
            return TensorType(dtype="int32" if self.name == "bits" else dtype, shape=shape)
        if self.name in _LOGICAL:
            require(dtype == "bool", f"{self.name}: inputs must be bool, got {dtype}")
        elif self.name not in ("eq", "ne"):
            require(dtype != "bool", f"{self.name}: inputs must be numbers, got bool")
        if self.name in _BITS:
            known = dtype.startswith(("int", "uint"))
            require(known, f"{self.name}: inputs must be integers, got {dtype}")
        if self.name in _FLOATS:
            require(is_float(dtype), f"{self.name}: input must be floating point, got {dtype}")
        return TensorType(dtype="bool" if self.name in COMPARISONS else dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        loads = [broadcast_load(name, t.shape, axes) for name, t in inputs]
        return (Compute(output[0], output[1].dtype, axes, fn(self.name, *loads)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        return apply_function(self.name, list(arrays))


Formula = Callable[[Value, Attrs, str], Value]
"""(x, attributes, dtype) -> the activation of x."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of one floating-point tensor: its formula, and numpy beside it."""

    name: str
    formula: Formula
    numpy: Callable[[Array, Attrs], Array]
    kind: OpKind = "elementwise"
    floats_only: bool = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        good = is_float(types[0].dtype) or not self.floats_only
        require(good, f"{self.name}: input must be floating point, got {types[0]}")
        self.formula(Const(0.0), attrs, types[0].dtype)  # attributes are checked here
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        load = broadcast_load(inputs[0][0], inputs[0][1].shape, axes)
        body = self.formula(load, attrs, output[1].dtype)
        return (Compute(output[0], output[1].dtype, axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        with np.errstate(all="ignore"):
            return self.numpy(arrays[0], attrs).astype(arrays[0].dtype, copy=False)


def _relu(x: Value, attrs: Attrs, dtype: str) -> Value:
    return fn("max", x, const(0, dtype))


def _clip(x: Value, attrs: Attrs, dtype: str) -> Value:
    low, high = _limits(attrs)
    if low > -math.inf:
        x = fn("max", x, const(low, dtype))
    return fn("min", x, const(high, dtype)) if high < math.inf else x


def _leaky_relu(x: Value, attrs: Attrs, dtype: str) -> Value:
    zero, alpha = const(0, dtype), const(number(attrs, "alpha", 0.01), dtype)
    return fn("add", fn("max", x, zero), fn("mul", alpha, fn("min", x, zero)))


def _elu(x: Value, attrs: Attrs, dtype: str) -> Value:
    zero, alpha = const(0, dtype), const(number(attrs, "alpha", 1.0), dtype)
    below = fn("expm1", fn("min", x, zero))
    return fn("add", fn("max", x, zero), fn("mul", alpha, below))


def _hard_sigmoid(x: Value, attrs: Attrs, dtype: str) -> Value:
    slope, zero, rest = _hard_sigmoid_line(attrs, dtype)
    line = fn("sub", x, const(zero, dtype)) if zero else x
    line = fn("mul", line, const(slope, dtype))
    line = fn("add", line, const(rest, dtype)) if rest else line
    return fn("min", fn("max", line, const(0, dtype)), const(1, dtype))


def _hard_swish(x: Value, attrs: Attrs, dtype: str) -> Value:
    """x * (x + 3, between 0 and 6) / 6: the sum is exact where it is small."""
    share = fn("min", fn("max", fn("add", x, const(3, dtype)), const(0, dtype)), const(6, dtype))
    return fn("mul", x, fn("mul", share, const(1 / 6, dtype)))


def _gelu(x: Value, attrs: Attrs, dtype: str) -> Value:
    exact = text(attrs, "approximate", "none", ("none", "tanh")) == "none"
    return fn("gelu_erf" if exact else "gelu_tanh", x)


def _snap(x: Value, attrs: Attrs, dtype: str) -> Value:
    """The nearest of the numbers (0 .. 255 - zero) * step: what a byte can say."""
    step, zero = (const(number(attrs, name), dtype) for name in ("step", "zero"))
    count = fn("add", fn("round", fn("div", x, step)), zero)
    count = fn("min", fn("max", count, const(0, dtype)), const(255, dtype))
    return fn("mul", fn("sub", count, zero), step)


def _limits(attrs: Attrs) -> tuple[float, float]:
    return number(attrs, "min", -math.inf), number(attrs, "max", math.inf)


def _hard_sigmoid_line(attrs: Attrs, dtype: str) -> tuple[float, float, float]:
    """(a, z, r) of alpha x + beta = a (x - z) + r, z being the number next to the line's zero: the
    difference is exact where the result is small, so that nothing cancels without a fused
    multiply-add, either."""
    # Attributes are float32 numbers, whatever x is.
    slope = float(np.float32(number(attrs, "alpha", 0.2)))
    offset = float(np.float32(number(attrs, "beta", 0.5)))
    if not 1e-30 < abs(slope) < 1e30 or not abs(offset / slope) < 1e30:
        return slope, 0.0, offset
    zero = -offset / slope if dtype == "float64" else float(np.float32(-offset / slope))
    return slope, zero, float(Fraction(slope) * Fraction(zero) + Fraction(offset))


def _np_gelu(x: Array, attrs: Attrs) -> Array:
    exact = attrs.get("approximate", "none") == "none"
    return apply_function("gelu_erf" if exact else "gelu_tanh", [x])


def _np_elu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > 0, x, number(attrs, "alpha", 1.0) * np.expm1(np.minimum(x, 0)))


def _np_hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    slope, zero, rest = (x.dtype.type(v) for v in _hard_sigmoid_line(attrs, x.dtype.name))
    return np.asarray(np.clip((x - zero) * slope + rest, 0, 1))


def _np_leaky_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > 0, x, number(attrs, "alpha", 0.01) * x)


def _np_clip(x: Array, attrs: Attrs) -> Array:
    low, high = _limits(attrs)
    x = np.maximum(x, x.dtype.type(low)) if low > -math.inf else x
    return np.minimum(x, x.dtype.type(high)) if high < math.inf else x


def _np_snap(x: Array, attrs: Attrs) -> Array:
    step, zero = (x.dtype.type(number(attrs, name)) for name in ("step", "zero"))
    return np.asarray((np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step)


class Scalar:
    """scalar(; value, dtype): a number that the compiler knows, or a size that a run has; shape
    ()."""

    name = "scalar"
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 0)
        if not is_size(attrs.get("value")):
            number(attrs, "value")
        return TensorType(dtype=text(attrs, "dtype", "float32", DTYPES), shape=())

    def value(self, attrs: Attrs) -> Const | IndexValue:
        """The literal, or the size as a number."""
        value, dtype = attrs["value"], text(attrs, "dtype", "float32", DTYPES)
        if is_size(value):
            return IndexValue(Index((), value), dtype)
        assert isinstance(value, int | float)
        return const(value, dtype)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        return (Compute(output[0], output[1].dtype, (), self.value(attrs)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        literal = self.value(attrs)
        if not isinstance(literal, Const):
            return np.asarray(attrs["value"], object)
        return np.asarray(literal.value, literal.dtype)


class Expand:
    """expand(x; shape): broadcast x to a shape (the shape of both, as numpy broadcasts)."""

    name = "expand"
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        shape = broadcast_shape(self.name, [types[0].shape, integers(attrs, "shape")])
        return TensorType(dtype=types[0].dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        load = broadcast_load(inputs[0][0], inputs[0][1].shape, axes)
        return (Compute(output[0], output[1].dtype, axes, load),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        shape = broadcast_shapes((arrays[0].shape, integers(attrs, "shape")))
        return np.asarray(np.broadcast_to(arrays[0], shape), order="C")


for _name in FUNCTIONS:
    OPS.add(_name, Function(_name))
for _op in (
    Activation("relu", _relu, lambda x, _: np.maximum(x, 0), floats_only=False),
    Activation("clip", _clip, _np_clip, floats_only=False),
    Activation("leaky_relu", _leaky_relu, _np_leaky_relu),
    Activation("elu", _elu, _np_elu),
    Activation("hard_sigmoid", _hard_sigmoid, _np_hard_sigmoid),
    Activation("hard_swish", _hard_swish, lambda x, _: x * (np.clip(x + 3, 0, 6) / 6)),
    Activation("gelu", _gelu, _np_gelu),
    Activation("snap", _snap, _np_snap),
    Scalar(),
    Expand(),
):
    OPS.add(_op.name, _op)
