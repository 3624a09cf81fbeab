"""Element functions as ops: every name of `program.ir.FUNCTIONS`, activations, scalar, expand.

Inputs broadcast as in numpy. Comparisons give bool; inputs of one op have one dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from autotune.ops.base import OPS
from autotune.program.functions import apply_function
from autotune.program.ir import COMPARISONS, FUNCTIONS, Compute, Const, Value, fn
from autotune.types import DTYPES, Array, Attrs, TensorType

_LOGICAL = ("and", "or", "not")
_FLOATS = (
    "sqrt", "rsqrt", "exp", "log", "erf", "tanh", "sigmoid", "sin", "cos", "reciprocal", "floor",
    "ceil", "round",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """An element function as an op of the same name."""

    name: str
    kind: str = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, FUNCTIONS[self.name])
        shape = broadcast_shape(self.name, [t.shape for t in types])
        if self.name.startswith("to_"):
            return TensorType(dtype=self.name.removeprefix("to_"), shape=shape)
        if self.name == "where":
            require(types[0].dtype == "bool", f"where: condition must be bool, got {types[0]}")
            return TensorType(dtype=same_dtype(self.name, types[1:]), shape=shape)
        dtype = same_dtype(self.name, types)
        if self.name == "bits":
            require(dtype == "float32", f"bits: input must be float32, got {dtype}")
            return TensorType(dtype="int32", shape=shape)
        if self.name in _LOGICAL:
            require(dtype == "bool", f"{self.name}: inputs must be bool, got {dtype}")
        elif self.name not in ("eq", "ne"):
            require(dtype != "bool", f"{self.name}: inputs must be numbers, got bool")
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
    kind: str = "elementwise"
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
    if math.isfinite(low):
        x = fn("max", x, const(low, dtype))
    return fn("min", x, const(high, dtype)) if math.isfinite(high) else x


def _leaky_relu(x: Value, attrs: Attrs, dtype: str) -> Value:
    zero, alpha = const(0, dtype), const(number(attrs, "alpha", 0.01), dtype)
    return fn("add", fn("max", x, zero), fn("mul", alpha, fn("min", x, zero)))


def _elu(x: Value, attrs: Attrs, dtype: str) -> Value:
    zero, alpha = const(0, dtype), const(number(attrs, "alpha", 1.0), dtype)
    below = fn("sub", fn("exp", fn("min", x, zero)), const(1, dtype))
    return fn("add", fn("max", x, zero), fn("mul", alpha, below))


def _hard_sigmoid(x: Value, attrs: Attrs, dtype: str) -> Value:
    alpha, beta = _hard_sigmoid_line(attrs)
    line = fn("add", fn("mul", x, const(alpha, dtype)), const(beta, dtype))
    return fn("min", fn("max", line, const(0, dtype)), const(1, dtype))


def _hard_swish(x: Value, attrs: Attrs, dtype: str) -> Value:
    return fn("mul", x, _hard_sigmoid(x, {"alpha": 1 / 6, "beta": 0.5}, dtype))


def _gelu(x: Value, attrs: Attrs, dtype: str) -> Value:
    if text(attrs, "approximate", "none", ("none", "tanh")) == "none":
        inside: Value = fn("erf", fn("mul", x, const(math.sqrt(0.5), dtype)))
    else:
        cube = fn("mul", fn("mul", x, x), fn("mul", x, const(0.044715, dtype)))
        inside = fn("tanh", fn("mul", const(math.sqrt(2 / math.pi), dtype), fn("add", x, cube)))
    half = fn("mul", x, const(0.5, dtype))
    return fn("mul", half, fn("add", inside, const(1, dtype)))


def _silu(x: Value, attrs: Attrs, dtype: str) -> Value:
    return fn("mul", x, fn("sigmoid", x))


def _softplus(x: Value, attrs: Attrs, dtype: str) -> Value:
    tail = fn("log", fn("add", fn("exp", fn("neg", fn("abs", x))), const(1, dtype)))
    return fn("add", fn("max", x, const(0, dtype)), tail)


def _mish(x: Value, attrs: Attrs, dtype: str) -> Value:
    return fn("mul", x, fn("tanh", _softplus(x, attrs, dtype)))


def _snap(x: Value, attrs: Attrs, dtype: str) -> Value:
    """The nearest of the numbers (0 .. 255 - zero) * step: what a byte can say."""
    step, zero = (const(number(attrs, name), dtype) for name in ("step", "zero"))
    count = fn("add", fn("round", fn("div", x, step)), zero)
    count = fn("min", fn("max", count, const(0, dtype)), const(255, dtype))
    return fn("mul", fn("sub", count, zero), step)


def _limits(attrs: Attrs) -> tuple[float, float]:
    return number(attrs, "min", -math.inf), number(attrs, "max", math.inf)


def _hard_sigmoid_line(attrs: Attrs) -> tuple[float, float]:
    return number(attrs, "alpha", 0.2), number(attrs, "beta", 0.5)


def _np_gelu(x: Array, attrs: Attrs) -> Array:
    if attrs.get("approximate", "none") == "none":
        return np.asarray(0.5 * x * (1 + apply_function("erf", [x / math.sqrt(2)])))
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _np_elu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > 0, x, number(attrs, "alpha", 1.0) * np.expm1(np.minimum(x, 0)))


def _np_hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    alpha, beta = _hard_sigmoid_line(attrs)
    return np.clip(alpha * x + beta, 0, 1)


def _np_leaky_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > 0, x, number(attrs, "alpha", 0.01) * x)


def _np_clip(x: Array, attrs: Attrs) -> Array:
    low, high = _limits(attrs)
    x = np.maximum(x, x.dtype.type(low)) if math.isfinite(low) else x
    return np.minimum(x, x.dtype.type(high)) if math.isfinite(high) else x


def _np_snap(x: Array, attrs: Attrs) -> Array:
    step, zero = (x.dtype.type(number(attrs, name)) for name in ("step", "zero"))
    return np.asarray((np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step)


def _np_softplus(x: Array, attrs: Attrs) -> Array:
    return np.logaddexp(x, 0)


class Scalar:
    """scalar(; value, dtype): a number that the compiler knows; shape ()."""

    name = "scalar"
    kind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 0)
        number(attrs, "value")
        return TensorType(dtype=text(attrs, "dtype", "float32", DTYPES), shape=())

    def value(self, attrs: Attrs) -> Const:
        """The literal."""
        value = attrs["value"]
        assert isinstance(value, int | float)
        return const(value, text(attrs, "dtype", "float32", DTYPES))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        return (Compute(output[0], output[1].dtype, (), self.value(attrs)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        literal = self.value(attrs)
        return np.asarray(literal.value, literal.dtype)


class Expand:
    """expand(x; shape): broadcast x to a shape (the shape of both, as numpy broadcasts)."""

    name = "expand"
    kind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        shape = broadcast_shape(self.name, [types[0].shape, integers(attrs, "shape")])
        return TensorType(dtype=types[0].dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        load = broadcast_load(inputs[0][0], inputs[0][1].shape, axes)
        return (Compute(output[0], output[1].dtype, axes, load),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        shape = np.broadcast_shapes(arrays[0].shape, integers(attrs, "shape"))
        return np.ascontiguousarray(np.broadcast_to(arrays[0], shape))


for _name in FUNCTIONS:
    OPS.add(_name, Function(_name))
for _op in (
    Activation("relu", _relu, lambda x, _: np.maximum(x, 0), floats_only=False),
    Activation("clip", _clip, _np_clip, floats_only=False),
    Activation("leaky_relu", _leaky_relu, _np_leaky_relu),
    Activation("elu", _elu, _np_elu),
    Activation("hard_sigmoid", _hard_sigmoid, _np_hard_sigmoid),
    Activation("hard_swish", _hard_swish, lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1)),
    Activation("gelu", _gelu, _np_gelu),
    Activation("snap", _snap, _np_snap),
    Activation("silu", _silu, lambda x, _: x / (1 + np.exp(-x))),
    Activation("softplus", _softplus, _np_softplus),
    Activation("mish", _mish, lambda x, a: x * np.tanh(_np_softplus(x, a))),
    Scalar(),
    Expand(),
):
    OPS.add(_op.name, _op)
