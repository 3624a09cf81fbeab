"""Fixed-point arithmetic as TensorFlow Lite's reference kernels have it, on arrays of int64.

Qm.n has m bits before the point and n behind it, and a sign, in 32 bits. Where a function of
bytes is computed by it, all 256 results are computed here, and kernels look them up. After
gemmlowp's fixed-point functions (https://github.com/google/gemmlowp, fixedpoint.h); coefficients
are rounded values of the numbers said beside them.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.types import Array

ONE = (1 << 31) - 1
"""The largest number of Q0.31, which stands for 1."""
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_LEAST_EXPONENT = -31
_MOST_COUNT = 1 << 16
"""Beyond what bytes have, whatever their zero point is."""
_EXP_EIGHTH, _THIRD = round(math.exp(-1 / 8) * 2**31), round(2**31 / 3)
_EXP_BITS = tuple((power, round(math.exp(-(2.0**power)) * 2**31)) for power in range(-2, 5))
NEWTON_START, NEWTON_SLOPE = round(48 / 17 * 2**29), round(32 / 17 * 2**29)
"""Newton's first guess of 1 / x, 1/2 <= x <= 1, is 48/17 - 32/17 x."""
HALF_ROOT_OF_TWO = round(math.sqrt(0.5) * 2**31)
"""In Q0.31."""


def quantized_multipliers(factors: Array) -> tuple[Array, Array]:
    """(multipliers, shifts): a factor is multiplier / 2**shift, the multiplier of 31 bits. What is
    too small for 32 bits is 0."""
    parts, exponents = np.frexp(factors.astype(np.float64))
    multipliers = np.floor(parts * 2.0**31 + 0.5).astype(np.int64)
    carried = multipliers == 1 << 31
    multipliers, exponents = multipliers >> carried, exponents + carried
    small = exponents < _LEAST_EXPONENT
    return np.where(small, 0, multipliers), np.where(small, 31, 31 - exponents).astype(np.int64)


def requantized(x: Array, factor: float) -> Array:
    """Integers times a real number, as the op `requantize` has it, rounded twice."""
    multiplier, shift = (int(a) for a in quantized_multipliers(np.asarray(factor)))
    first = min(shift, 31)
    wide = np.asarray(x, np.int64) * np.int64(multiplier) + (1 << (first - 1))
    near = np.right_shift(wide, first)
    return divided(near, shift - first)


def settled(
    sums: Array, constant: Array, multipliers: Array, shifts: Array
) -> tuple[Array, Array, Array]:
    """(sums, multipliers, shifts) where those that are `constant` are as small as their results:
    converters write those of empty filters as sums of 31 bits and shifts of 60."""
    first = np.minimum(shifts, 31)
    near = (sums.astype(np.int64) * multipliers + (np.int64(1) << (first - 1))) >> first
    counts = np.clip(divided(near, shifts - first), -_MOST_COUNT, _MOST_COUNT)
    return (
        np.where(constant, 2 * counts, sums),
        np.where(constant, 1 << 30, multipliers),
        np.where(constant, 31, shifts),
    )


def high_product(a: Array, b: Array | int) -> Array:
    """a * b / 2**31, halves up."""
    product: Array = a * b + (1 << 30)
    return np.asarray(np.clip(product >> 31, _LOW, _HIGH))


def divided(x: Array, bits: Array | int) -> Array:
    """x / 2**bits, halves away from zero; bits may be 0."""
    mask = (np.int64(1) << bits) - 1
    return np.asarray((x >> bits) + ((x & mask) > (mask >> 1) + (x < 0)))


def multiplied(x: Array, bits: int) -> Array:
    """x * 2**bits within 32 bits."""
    return np.asarray(np.clip(x << bits, _LOW, _HIGH))


def exp_of_negative(a: Array, integer_bits: int) -> Array:
    """e**a, a <= 0, in Q0.31: a polynomial for the last quarter, one factor for every bit of what
    is left."""
    point = 31 - integer_bits
    quarter = np.int64(1) << (point - 2)
    rest = (a & (quarter - 1)) - quarter
    whole = rest - a
    out = _exp_of_quarter(rest << integer_bits)
    for power, factor in _EXP_BITS[: integer_bits + 2]:
        out = np.where(whole & (np.int64(1) << (point + power)), high_product(out, factor), out)
    return np.where(a == 0, ONE, out)


def _exp_of_quarter(a: Array) -> Array:
    """e**a, -1/4 <= a < 0, by a series around -1/8."""
    x = a + (1 << 28)
    square = high_product(x, x)
    cube, fourth = high_product(square, x), high_product(square, square)
    terms = high_product(divided(fourth, 2) + cube, _THIRD) + square
    return _EXP_EIGHTH + high_product(x + divided(terms, 1), _EXP_EIGHTH)


def _newton(a: Array) -> Array:
    """2 / (1 + a) in Q2.29, for a of Q0.31, 0 <= a <= 1."""
    half = (a + ONE + 1) >> 1
    x = NEWTON_START + high_product(half, -NEWTON_SLOPE)
    for _ in range(3):
        x = x + multiplied(high_product(x, (1 << 29) - high_product(half, x)), 2)
    return x


def one_over_one_plus(a: Array) -> Array:
    """1 / (1 + a) in Q0.31, 0 <= a <= 1."""
    return multiplied(_newton(a), 1)


def logistic(a: Array) -> Array:
    """1 / (1 + e**-a) of Q4.27 in Q0.31."""
    positive = one_over_one_plus(exp_of_negative(-np.abs(a), 4))
    out = np.where(a > 0, positive, ONE - positive)
    return np.where(a == 0, 1 << 30, out)


def tanh(a: Array) -> Array:
    """tanh of Q4.27 in Q0.31, by (1 - t) / (1 + t) with t = e**-2|a|, which has the same bits in
    Q5.26."""
    size = multiplied(_newton(exp_of_negative(-np.abs(a), 5)) - (1 << 29), 2)
    return np.where(a == 0, 0, np.where(a > 0, size, -size))


def times(x: int, multiplier: int, shift: int, left: int = 0) -> int:
    """x * multiplier / 2**shift * 2**left as the op `requantize` has it, rounded twice."""
    shift -= left
    first = min(shift, 31)
    near = (x * multiplier + (1 << (first - 1))) >> first
    return int(divided(np.asarray(near, np.int64), shift - first))


def reciprocal_root(x: int) -> tuple[int, int]:
    """(multiplier, shift) of 1 / sqrt(x), x >= 1: Newton's method in Q3.28, of x times a power of
    four between 2**27 and 2**29."""
    if x <= 1:
        return ONE, 31
    pairs = (31 - x.bit_length()) // 2 - 1
    near = np.asarray((x << 2 * (pairs + 1)) >> 2, np.int64)
    half, guess = divided(near >> 1, 1), np.asarray(1 << 28, np.int64)
    for _ in range(5):
        cube = multiplied(high_product(high_product(guess, guess), guess), 6)
        guess = multiplied(high_product(guess, 3 << 27) - high_product(half, cube), 3)
    return int(high_product(guess, HALF_ROOT_OF_TWO)), 31 + 11 - pairs


def complementary_error(x: Array) -> Array:
    """1 - erf(x), in the type of x."""
    made = [math.erfc(float(v)) for v in np.asarray(x).ravel()]
    return np.asarray(made, np.asarray(x).dtype).reshape(np.shape(x))
