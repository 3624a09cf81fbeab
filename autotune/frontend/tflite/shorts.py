"""TensorFlow Lite importers: what the reference kernels make of int16 with scales, by weights of
int8 ("16x8" models). Zero points are 0, and values are in graphs as in files.

Products are those of bytes: x is 256 a + b, where a is its upper byte and b its lower, and a is
multiplied 128 more, as uint8; so sums are of 32 bits until both are added in 64, which the
reference kernels sum in. `tables.py`, `image.py` and `linear.py` ask for these where they meet
int16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite import fixed_point as fixed
from autotune.frontend.tflite.context import MOVED, OperatorContext, TfliteTensor, limits
from autotune.types import Array

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_KNOWN = ("float32", "int8", "uint8", "int16")
_UNIT = 1 / 32768
"""The step of results between -1 and 1."""
_PART = 16
"""Bits of the lower part of a sum of 64."""
_TABLE_STEPS = 512
_LEAST_EXP = -10.0
"""Where e**x is taken for the last time: what is below is as little."""


def of_shorts(n: OperatorContext, *positions: int) -> bool:
    """Whether these inputs and the output are int16 with scales. Raises UnsupportedOpError where
    they have zero points."""
    tensors = [*(n.tensor(p) for p in positions), n.result()]
    if any(t.dtype != "int16" or not t.scales.size for t in tensors):
        return False
    if any(t.zeros.any() for t in tensors):
        raise UnsupportedOpError("int16 with zero points is not supported; expected 0")
    return True


def as_shorts(n: OperatorContext, counts: str, activation: int = 0) -> str:
    """Integers in the output's steps as its int16, within a fused activation's limits."""
    return _limited(n, counts, limits(activation))


def _limited(n: OperatorContext, counts: str, real: tuple[float | None, float | None]) -> str:
    scale = np.float32(n.result().scale)
    low, high = (
        edge if v is None else int(np.sign(v) * np.floor(abs(np.float32(v) / scale) + 0.5))
        for v, edge in zip(real, (_LOW, _HIGH), strict=True)
    )
    return n.cast(n.op("clip", counts, min=max(low, _LOW), max=min(high, _HIGH)), "int16")


# ------------------------------------------------------------------------------- sums of products


def halves(n: OperatorContext, x: str) -> tuple[str, str]:
    """(the upper byte, 128 more, the lower byte) as uint8."""
    wide = n.cast(x, "int32")
    upper = n.op("shift_right", wide, n.like(8, wide))
    upper = n.op("to_uint8", n.op("add", upper, n.like(MOVED, upper)))
    return upper, n.op("to_uint8", n.op("bit_and", wide, n.like(255, wide)))


def products(
    n: OperatorContext,
    x: str,
    multiplied: Callable[[str], str],
    weights: TfliteTensor,
    pads: tuple[int, ...] = (),
) -> str:
    """Sums of products as int64. `multiplied`: those of uint8, as int32; `pads`: widths around
    the data, of zeros. Raises where the weights are not of int8."""
    if weights.dtype != "int8" or weights.zeros.any():
        raise UnsupportedOpError(f"int16 by {weights.dtype} is not supported; expected int8")
    parts = []
    for data, zero in zip(halves(n, x), (float(MOVED), 0.0), strict=True):
        padded = n.op("pad", data, pads=pads, value=zero) if any(pads) else data
        parts.append(n.cast(multiplied(padded), "int64"))
    high, low = parts
    return n.op("add", n.op("mul", high, n.like(256, high)), low)


def scaled(n: OperatorContext, total: str, weights: Array, factors: Array) -> str:
    """Those sums, of weights [..., O], as the output's steps: by multipliers of 15 bits."""
    multipliers, shifts = fixed.quantized_multipliers(factors)
    short = np.where(multipliers < 0x7FFF0000, (multipliers + (1 << 15)) >> 16, 0x7FFF)
    product = n.op("mul", _biased(n, total, weights), _wide(n, short))
    near = n.op("add", product, _wide(n, np.int64(1) << (shifts - 17)))
    return n.op("shift_right", near, _wide(n, shifts - 16))


def scaled_finely(n: OperatorContext, total: str, weights: Array, factors: Array) -> str:
    """The same by multipliers of 31 bits, as fully connected layers are: of the upper and the
    lower part of a sum, whose product has more than 64 bits."""
    multipliers, shifts = fixed.quantized_multipliers(factors)
    if shifts.min() < _PART:
        raise UnsupportedOpError("a result in such fine steps is not supported")
    total, factor = _biased(n, total, weights), _wide(n, multipliers)
    upper = n.op("shift_right", total, n.like(_PART, total))
    lower = n.op("bit_and", total, n.like((1 << _PART) - 1, total))
    lower = n.op("add", n.op("mul", lower, factor), _wide(n, np.int64(1) << (shifts - 1)))
    lower = n.op("shift_right", lower, n.like(_PART, lower))
    product = n.op("add", n.op("mul", upper, factor), lower)
    return n.op("shift_right", product, _wide(n, shifts - _PART))


def _biased(n: OperatorContext, total: str, weights: Array) -> str:
    """Sums less what was multiplied more, with the bias."""
    bias = -256 * MOVED * weights.astype(np.int64).sum(axis=tuple(range(weights.ndim - 1)))
    if n.has(2):
        if n.tensor(2).dtype != "int64":
            raise UnsupportedOpError(
                f"a bias of {n.tensor(2).dtype} beside int16 is not supported; expected int64"
            )
        bias = bias + n.counts(2)
    return n.op("add", total, n.constant(bias))


def _wide(n: OperatorContext, array: Array) -> str:
    return n.constant(np.atleast_1d(array).astype(np.int64))


# --------------------------------------------------------------------------------- pairs of values


def added(n: OperatorContext, name: str, activation: int, *, powers: bool) -> str:
    """Sums and differences: both in steps of twice the larger scale, 15 bits further down.
    `powers`: scales that are powers of two are told apart, which is not done here."""
    scales = [n.tensor(0).scale, n.tensor(1).scale, n.result().scale]
    if powers and all(np.frexp(s)[0] == 0.5 for s in scales):
        raise UnsupportedOpError("int16 whose scales are all powers of two is not supported here")
    twice = 2 * max(scales[:2])
    up = 1 << 15
    left, right = (
        n.scaled(n.op("mul", wide, n.like(up, wide)), [scale / twice])
        for wide, scale in zip((n.whole(0), n.whole(1)), scales, strict=False)
    )
    total = n.scaled(n.op(name, left, right), [twice / (up * scales[2])])
    return as_shorts(n, total, activation)


def multiplied(n: OperatorContext, activation: int) -> str:
    product = n.op("mul", n.whole(0), n.whole(1))
    return as_shorts(n, n.scaled(product, [n.ratio(0, 1)]), activation)


# --------------------------------------------------------------------------------------- functions


def logistic(n: OperatorContext) -> str:
    """By a table of 256 in steps of 1/24, between which it is taken for straight."""
    x, size = _thirds(n, {0})
    share = _between(n, size, bits=9, most=0x7FFF << 10)
    zero = n.like(0, x)
    above = n.op("add", share, n.like(1 << 9, share))
    below = n.op("sub", n.like((1 << 25) + (1 << 9) - 1, share), share)
    y = n.op("where", n.op("ge", x, zero), above, below)
    return n.op("to_int16", n.op("shift_right", y, n.like(10, y)))


def tanh(n: OperatorContext) -> str:
    """As 2 logistic(2 x) - 1."""
    x, size = _thirds(n, {0, 1})
    share = _between(n, size, bits=8, most=0xFFFF << 8)
    above = n.op("add", share, n.like(-(1 << 23) + (1 << 7), share))
    below = n.op("sub", n.like((1 << 23) + (1 << 7) - 1, share), share)
    y = n.op("where", n.op("ge", x, n.like(0, x)), above, below)
    return n.op("to_int16", n.op("shift_right", y, n.like(8, y)))


def _thirds(n: OperatorContext, known: set[int]) -> tuple[str, str]:
    """(x, |x|) in steps of 1/(3 * 4096); `known`: powers of two that steps of 1/4096 may be
    taken by."""
    if n.result().scale != _UNIT:
        raise UnsupportedOpError(f"the result's scale must be {_UNIT}")
    scale, shift = n.tensor(0).scale, 0
    part, exponent = np.frexp(scale)
    left = 12 + int(exponent) - 1
    if part == 0.5 and left in known:
        multiplier = 3 << left
    else:
        factor = scale * 4096.0 * 3.0
        while factor <= 32767.0 / 2 and shift <= 30:
            factor, shift = factor * 2, shift + 1
        multiplier = int(factor)
    wide = n.whole(0)
    x = n.op("mul", wide, n.like(multiplier, wide))
    if shift:
        x = n.op("add", x, n.like(1 << (shift - 1), x))
        x = n.op("shift_right", x, n.like(shift, x))
    return x, n.op("abs", x)


def _shares() -> Array:
    """The logistic function of n / 24 in parts of 65536, moved by half of the error that lies in
    the middle between it and the next; the last one is the largest number of 16 bits."""
    at = np.arange(513) / 48
    exact = 65536 / (1 + np.exp(-at))
    here, middle, behind = exact[:-2:2], exact[1::2], exact[2::2]
    out = np.floor(here - ((here + behind) / 2 - middle) / 2 + 0.5)
    out[-1] = 65535
    return out


def _between(n: OperatorContext, size: str, *, bits: int, most: int) -> str:
    """The table's value at a place whose last bits are between two of its."""
    at = n.op("shift_right", size, n.like(bits, size))
    rest = n.op("bit_and", size, n.like((1 << bits) - 1, size))
    place = n.op("min", at, n.like(255, at))
    shares = _shares()
    low = n.op("gather", n.constant(shares, "int32"), place, axis=0)
    steps = np.append(np.diff(shares), 0)
    step = n.op("gather", n.constant(steps, "int32"), place, axis=0)
    share = n.op("mul", low, n.like(1 << bits, low))
    share = n.op("add", share, n.op("mul", rest, step))
    return n.op("where", n.op("ge", at, n.like(255, at)), n.like(most, share), share)


def softmax(n: OperatorContext, beta: float) -> str:
    """e**x and 1 / (1 + x) by tables of 513; sums in 32 bits."""
    if n.result().scale != _UNIT:
        raise UnsupportedOpError(f"the result's scale must be {_UNIT}")
    x, last = n.whole(0), (n.rank(n.input(0)) - 1,)
    apart = n.op("sub", x, n.op("reduce_max", x, axes=last, keepdims=True))
    step = np.float32(n.tensor(0).scale) * np.float32(beta)
    near = n.scaled(apart, [float(step) / (-_LEAST_EXP / 65535.0)])
    near = n.op("clip", n.op("add", near, n.like(_HIGH, near)), min=_LOW, max=_HIGH)
    powers = _looked_up(n, near, _short_table(np.exp, _LEAST_EXP, 0.0))
    total = n.op("reduce_sum", powers, axes=last, keepdims=True)
    # How far it lies below 2**31, by comparing: the count of the leading bits but one.
    bits = n.constant(2 ** np.arange(30, 0, -1), "int32")
    left = n.op("reduce_sum", n.cast(n.op("lt", total, bits), "int32"), axes=last, keepdims=True)
    wide = n.op("shift_left", n.cast(total, "int64"), n.cast(left, "int64"))
    part = n.op("shift_right", n.op("add", wide, n.like(1 << 13, wide)), n.like(14, wide))
    part = n.op("sub", n.cast(part, "int32"), n.like((1 << 15) + (1 << 16), left))
    part = n.op("clip", part, min=_LOW, max=_HIGH)
    share = _looked_up(n, part, _short_table(lambda v: 1 / (1 + v), 0.0, 1.0))
    right = n.op("sub", n.like(30, left), left)
    half = n.op("shift_left", n.like(1, right), n.op("sub", right, n.like(1, right)))
    y = n.op("add", n.op("mul", powers, share), half)
    y = n.op("clip", n.op("shift_right", y, right), min=0, max=_HIGH)
    return n.op("to_int16", y)


def _short_table(function: Callable[[Array], Array], least: float, most: float) -> Array:
    """What a function gives in 513 places, in steps of 1/32768, each moved by half of the error
    that lies in the middle between it and the next."""

    def rounded(v: Array) -> Array:
        return np.asarray(np.sign(v) * np.floor(np.abs(v) + 0.5))

    step = (most - least) / _TABLE_STEPS
    at = least + np.arange(_TABLE_STEPS + 1) * step
    here, middle = function(at) * 32768.0, function(at[:-1] + step / 2) * 32768.0
    between = rounded((here[1:] + rounded(here[:-1])) / 2) - rounded(middle)
    out = np.append(rounded(here[:-1]) - rounded(between / 2), rounded(here[-1]))
    return np.asarray(np.clip(out, _LOW, _HIGH).astype(np.int64))


def _looked_up(n: OperatorContext, x: str, table: Array) -> str:
    """That table at a number of 16 bits, straight between its places."""
    at = n.op("shift_right", x, n.like(7, x))
    at = n.op("add", at, n.like(_TABLE_STEPS // 2, at))
    low = n.op("gather", n.constant(table, "int32"), at, axis=0)
    steps = n.op("gather", n.constant(np.diff(table), "int32"), at, axis=0)
    more = n.op("mul", steps, n.op("bit_and", x, n.like(127, x)))
    more = n.op("shift_right", n.op("add", more, n.like(64, more)), n.like(7, more))
    return n.op("add", low, more)


def rescaled(
    n: OperatorContext, factors: Sequence[float], real: tuple[float | None, float | None]
) -> str:
    """Input 0 times a number, within limits that are real numbers."""
    return _limited(n, n.scaled(n.whole(0), factors), real)


def quantized(n: OperatorContext) -> str:
    """Floats or integers as int16, or int16 as bytes."""
    tensor, result = n.tensor(0), n.result()
    if (result.dtype == "int16" and result.zeros.any()) or tensor.dtype not in _KNOWN:
        raise UnsupportedOpError(f"{tensor.dtype} as int16 with zero points is not supported")
    if tensor.dtype != "float32":
        counts = n.scaled(n.whole(0), [tensor.scale / result.scale])
        return as_shorts(n, counts) if result.dtype == "int16" else n.as_result(counts)
    count = n.op("div", n.input(0), n.like(result.scale, n.input(0)))
    return as_shorts(n, n.op("to_int32", n.rounded_away(count, most=1 << 16)))
