"""ONNX importers: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import functools
import math

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import Importer, NodeContext, importer
from autotune.types import is_unsigned

# ONNX operator -> internal op, one to one and without attributes.
PLAIN = {
    "Neg": "neg", "Abs": "abs", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf",
    "Tanh": "tanh", "Sigmoid": "sigmoid", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sign": "sign", "Sin": "sin", "Cos": "cos", "Reciprocal": "reciprocal", "Not": "not",
    "Relu": "relu", "Softplus": "softplus", "Mish": "mish", "HardSwish": "hard_swish",
    "BitwiseNot": "bit_not",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Equal": "eq", "Greater": "gt",
    "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le", "And": "and", "Or": "or",
    "Xor": "ne", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor",
}  # fmt: skip
VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}

_MOST_FACTORS = 8
"""Powers of integers are so many products at most."""
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875
"""Defaults of Selu's attributes (ONNX operator set)."""


def _plain(op: str) -> Importer:
    return lambda n: n.op(op, n.input(0))


def _binary(op: str) -> Importer:
    return lambda n: n.op(op, n.input(0), n.input(1))


def _variadic(op: str) -> Importer:
    return lambda n: functools.reduce(lambda a, b: n.op(op, a, b), n.rest(1), n.input(0))


for _operator, _op in PLAIN.items():
    importer(_operator)(_plain(_op))
for _operator, _op in BINARY.items():
    importer(_operator)(_binary(_op))
for _operator, _op in VARIADIC.items():
    importer(_operator)(_variadic(_op))


@importer("Mean")
def mean(n: NodeContext) -> str:
    total = functools.reduce(lambda a, b: n.op("add", a, b), n.rest(1), n.input(0))
    return n.op("div", total, n.like(len(n.inputs), total))


@importer("Pow")
def power(n: NodeContext) -> str:
    x, exponent = n.input(0), n.input(1)
    if not n.dtype(x).startswith("float"):
        return _whole_power(n, x, exponent)
    return n.op("pow", x, n.cast(exponent, n.dtype(x)))


def _whole_power(n: NodeContext, x: str, exponent: str) -> str:
    """Integers by a small constant power are products, others go through doubles."""
    array = n.known(exponent)
    if array is not None and array.size == 1 and array.item() in range(1, _MOST_FACTORS + 1):
        alone = n.op("expand", x, shape=array.shape)
        return functools.reduce(
            lambda a, _: n.op("mul", a, x), range(int(array.item()) - 1), alone
        )
    wide = n.op("pow", n.cast(x, "float64"), n.cast(exponent, "float64"))
    return n.cast(wide, n.dtype(x))


@importer("IsInf")
def is_infinite(n: NodeContext) -> str:
    x, found = n.input(0), n.constant(False)
    for name, end in (("detect_positive", math.inf), ("detect_negative", -math.inf)):
        if n.integer(name, 1):
            found = n.op("or", found, n.op("eq", x, n.like(end, x)))
    return n.op("expand", found, shape=n.shape(x))


@importer("Mod")
def mod(n: NodeContext) -> str:
    """The remainder has the divisor's sign, with `fmod` the dividend's."""
    x, divisor = n.input(0), n.input(1)
    if not n.integer("fmod", 0) or is_unsigned(n.dtype(x)):
        return n.op("mod", x, divisor)
    if not n.dtype(x).startswith("float"):
        whole = n.op("mul", n.op("div", x, divisor), divisor)
        zero = n.like(0, x)
        return n.op("where", n.op("eq", divisor, zero), zero, n.op("sub", x, whole))
    return n.op("mul", n.op("sign", x), n.op("mod", n.op("abs", x), n.op("abs", divisor)))


@importer("BitShift")
def bit_shift(n: NodeContext) -> str:
    direction = n.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction must be LEFT or RIGHT, got {direction!r}")
    return n.op(f"shift_{direction.lower()}", n.input(0), n.input(1))


@importer("LeakyRelu")
def leaky_relu(n: NodeContext) -> str:
    return n.op("leaky_relu", n.input(0), alpha=n.number("alpha", 0.01))


@importer("PRelu")
def prelu(n: NodeContext) -> str:
    x, slope = n.input(0), n.input(1)
    below = n.op("lt", x, n.like(0, x))
    return n.op("where", below, n.op("mul", x, slope), x)


@importer("Elu")
def elu(n: NodeContext) -> str:
    return n.op("elu", n.input(0), alpha=n.number("alpha", 1.0))


@importer("Selu")
def selu(n: NodeContext) -> str:
    y = n.op("elu", n.input(0), alpha=n.number("alpha", SELU_ALPHA))
    return n.op("mul", y, n.like(n.number("gamma", SELU_GAMMA), y))


@importer("Celu")
def celu(n: NodeContext) -> str:
    """max(x, 0) + alpha * (e**(min(x, 0) / alpha) - 1): large numbers are not divided."""
    x, alpha = n.input(0), n.number("alpha", 1.0)
    scale, zero = n.like(alpha, x), n.like(0, x)
    below = n.op("expm1", n.op("div", n.op("min", x, zero), scale))
    return n.op("add", n.op("max", x, zero), n.op("mul", below, scale))


@importer("ThresholdedRelu")
def thresholded_relu(n: NodeContext) -> str:
    x = n.input(0)
    above = n.op("gt", x, n.like(n.number("alpha", 1.0), x))
    return n.op("where", above, x, n.like(0, x))


@importer("Shrink")
def shrink(n: NodeContext) -> str:
    """Nearer to zero by `bias`, and zero within `lambd` of it."""
    x = n.input(0)
    limit, bias, zero = n.number("lambd", 0.5), n.like(n.number("bias", 0.0), x), n.like(0, x)
    wide = n.cast(x, "float64") if not n.dtype(x).startswith("float") else x
    above = n.op("gt", wide, n.like(limit, wide))
    below = n.op("lt", wide, n.like(-limit, wide))
    rest = n.op("where", below, n.op("add", x, bias), zero)
    return n.op("where", above, n.op("sub", x, bias), rest)


@importer("Softsign")
def softsign(n: NodeContext) -> str:
    x = n.input(0)
    return n.op("div", x, n.op("add", n.op("abs", x), n.like(1, x)))


@importer("HardSigmoid")
def hard_sigmoid(n: NodeContext) -> str:
    alpha, beta = n.number("alpha", 0.2), n.number("beta", 0.5)
    return n.op("hard_sigmoid", n.input(0), alpha=alpha, beta=beta)


@importer("Gelu")
def gelu(n: NodeContext) -> str:
    approximate = n.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise UnsupportedOpError(f"approximate must be none or tanh, got {approximate!r}")
    return n.op("gelu", n.input(0), approximate=approximate)


@importer("Swish", "Silu")
def swish(n: NodeContext) -> str:
    x, alpha = n.input(0), n.number("alpha", 1.0)
    if alpha == 1.0:
        return n.op("silu", x)
    return n.op("swish", x, n.like(alpha, x))


@importer("Clip")
def clip(n: NodeContext) -> str:
    x = n.input(0)
    if n.opset < 11:
        low, high = n.number("min", -math.inf), n.number("max", math.inf)
        return n.op("clip", x, min=low, max=high)
    bounds = [n.optional(1), n.optional(2)]
    arrays = [None if b is None else n.known(b) for b in bounds]
    fixed = all(b is None or a is not None for b, a in zip(bounds, arrays, strict=True))
    if fixed and n.dtype(x).startswith("float"):
        low, high = (default if a is None else float(a.item()) for a, default in
                     zip(arrays, (-math.inf, math.inf), strict=True))  # fmt: skip
        return n.op("clip", x, min=low, max=high)
    for op, bound in zip(("max", "min"), bounds, strict=True):
        x = x if bound is None else n.op(op, x, bound)
    return x


@importer("Where")
def where(n: NodeContext) -> str:
    return n.op("where", n.input(0), n.input(1), n.input(2))


@importer("IsNaN")
def is_nan(n: NodeContext) -> str:
    return n.op("ne", n.input(0), n.input(0))


@importer("Identity")
def identity(n: NodeContext) -> str:
    return n.input(0)


@importer("Dropout")
def dropout(n: NodeContext) -> tuple[str, str]:
    """Nothing at inference, or where none are dropped: the mask keeps everything."""
    n.ignore("ratio", "seed", "is_test")
    training = n.parameter(2)
    if training is not None and training.any():
        share = n.parameter(1)
        if share is None or share.any():
            raise UnsupportedOpError("training_mode is on; export the model for inference")
    return n.input(0), n.op("expand", n.constant(True), shape=n.shape(n.input(0)))
