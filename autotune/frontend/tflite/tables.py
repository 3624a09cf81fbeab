"""TensorFlow Lite importers: functions of one element. Of bytes they are tables of 256."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite import fixed_point as fixed
from autotune.frontend.tflite import shorts
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.types import Array

_ALL = np.arange(-128, 128, dtype=np.int64)
_BYTES = ("int8", "uint8")
_BITS = 27
"""Behind the point of Q4.27, which arguments of the logistic function and of tanh are in."""
_LOGISTIC_STEPS, _TANH_STEPS = ((1 / 256, -128), (1 / 128, 0))
"""(scale, zero point) that their results have."""


@tflite_importer("LOGISTIC")
def logistic(n: OperatorContext) -> str:
    if shorts.of_shorts(n, 0):
        return shorts.logistic(n)
    if not n.quantized(0):
        return n.op("sigmoid", n.input(0))
    return n.looked_up(_saturating(n, fixed.logistic, 8, _LOGISTIC_STEPS))


@tflite_importer("TANH")
def tanh(n: OperatorContext) -> str:
    if shorts.of_shorts(n, 0):
        return shorts.tanh(n)
    if not n.quantized(0):
        return n.op("tanh", n.input(0))
    return n.looked_up(_saturating(n, fixed.tanh, 7, _TANH_STEPS))


def _saturating(
    n: OperatorContext, function: Callable[[Array], Array], bits: int, steps: tuple[float, int]
) -> Array:
    """Bytes of a function of Q4.27 that is flat beyond 16; `bits` behind the point of a result."""
    if (n.result().scale, n.result().zero) != steps:
        raise UnsupportedOpError(f"the result's scale and zero point must be {steps}")
    tensor = n.tensor(0)
    _, shift = fixed.quantized_multipliers(np.asarray(tensor.scale * 2.0**_BITS))
    left = 31 - int(shift)
    radius = int(np.floor((2**4 - 1) * 2.0 ** (31 - 4) / 2.0**left))
    counts = _ALL - tensor.zero
    inside = np.clip(counts, -radius, radius)
    out = fixed.divided(function(fixed.requantized(inside, tensor.scale * 2.0**_BITS)), 31 - bits)
    out = np.where(np.abs(counts) >= radius, np.sign(counts) << bits, out)
    if bits == 8:
        out = np.where(counts <= -radius, 0, out)
    return np.asarray(np.clip(out + steps[1], -128, 127))


@tflite_importer("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def relu(n: OperatorContext) -> str:
    low, high = (-1.0 if n.is_a("RELU_N1_TO_1") else 0.0), None
    if not n.is_a("RELU"):
        high = 6.0 if n.is_a("RELU6") else 1.0
    if shorts.of_shorts(n, 0):
        return shorts.rescaled(n, [n.ratio(0)], (low, high))
    if not n.quantized(0, unsigned=True):
        return n.op("relu", n.input(0)) if high is None else n.op(
            "clip", n.input(0), min=low, max=high
        )  # fmt: skip
    return n.as_result(n.scaled(n.whole(0), [n.ratio(0)]), low, high)


@tflite_importer("LEAKY_RELU")
def leaky_relu(n: OperatorContext) -> str:
    alpha = n.options("LeakyReluOptions").Alpha()
    if not n.quantized(0):
        return n.op("leaky_relu", n.input(0), alpha=alpha)
    counts, scale = _ALL - n.tensor(0).zero, np.float32(n.tensor(0).scale)
    slope = scale * np.float32(alpha) / np.float32(n.result().scale)
    below = fixed.requantized(counts, float(slope))
    out = np.where(counts >= 0, fixed.requantized(counts, n.ratio(0)), below)
    return n.looked_up(np.clip(out + n.result().zero, -128, 127))


@tflite_importer("HARD_SWISH")
def hard_swish(n: OperatorContext) -> str:
    """x * (x + 3, between 0 and 6) / 6 in 16 bits."""
    if not n.quantized(0):
        return n.op("hard_swish", n.input(0))
    fine = np.float32(n.tensor(0).scale) / np.float32(128)
    x = (_ALL - n.tensor(0).zero) * 128
    share, share_shift = _short_multiplier(float(fine / np.float32(3 / 32768)))
    factor, factor_shift = _short_multiplier(float(fine / np.float32(n.result().scale)))
    within = _short(x << max(share_shift - 1, 0))
    within = _high_short(within, share)
    within = _short(within << 1) if share_shift > 0 else fixed.divided(within, -share_shift)
    within = (within + (1 << 15)) >> 1
    cut = within * _high_short(x, factor)
    cut = np.sign(cut) * (np.abs(cut) >> 15)
    out = fixed.divided(cut, -factor_shift) + n.result().zero
    return n.looked_up(np.clip(out, -128, 127))


def _short_multiplier(factor: float) -> tuple[int, int]:
    """(16 bits of a number between 1/2 and 1, its exponent)."""
    multiplier, shift = (int(a) for a in fixed.quantized_multipliers(np.asarray(factor)))
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), 31 - shift


def _short(x: Array) -> Array:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def _high_short(a: Array, b: int) -> Array:
    """a * b / 2**15, halves up."""
    return (a * b + (1 << 14)) >> 15


@tflite_importer("QUANTIZE")
def quantize(n: OperatorContext) -> str:
    """Floats as bytes, or bytes in other steps."""
    result = n.result()
    if "int16" in (result.dtype, n.tensor(0).dtype):
        return shorts.quantized(n)
    if result.dtype not in _BYTES or n.tensor(0).dtype not in ("float32", *_BYTES):
        raise UnsupportedOpError(
            f"{n.tensor(0).dtype} as {result.dtype} is not supported; expected float32 or bytes "
            "as bytes"
        )
    if n.tensor(0).dtype in _BYTES:
        return n.as_result(n.scaled(n.whole(0), [n.tensor(0).scale / result.scale]))
    count = n.op("div", n.input(0), n.like(result.scale, n.input(0)))
    return n.as_result(n.op("to_int32", n.rounded_away(count)))


@tflite_importer("DEQUANTIZE")
def dequantize(n: OperatorContext) -> str:
    tensor = n.tensor(0)
    if n.result().dtype == tensor.dtype == "float32":
        return n.input(0)  # constants of 16 bits, which are floats here from the start
    if n.result().dtype != "float32" or tensor.dtype not in (*_BYTES, "int16"):
        raise UnsupportedOpError(f"{tensor.dtype} as {n.result().dtype} is not supported")
    counts = n.cast(n.whole(0), "float32")
    return n.op("mul", counts, n.like(tensor.scale, counts))
