"""Functions of fixed-point numbers of 16 bits, on arrays of all of them: after gemmlowp's
(fixedpoint.h), as `fixed_point.py` has those of 32 bits."""

from __future__ import annotations

import math

import numpy as np

from autotune.types import Array

_ALL = np.arange(-(1 << 15), 1 << 15, dtype=np.int64)
_ONE = (1 << 15) - 1
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


def logistics() -> Array:
    """1 / (1 + e**-a) in Q0.15 of every a of Q3.12."""
    positive = _one_over_one_plus(_exp_of_negative(-np.abs(_ALL), 3))
    out = np.where(_ALL > 0, positive, _ONE - positive)
    return np.asarray(np.where(_ALL == 0, 1 << 14, out))


def tanhs(integer_bits: int) -> Array:
    """tanh in Q0.15 of every number with so many bits before its point."""
    power = _exp_of_negative(-np.abs(_ALL), integer_bits + 1)
    size = _multiplied(_newton(power) - (1 << 13), 2)
    return np.where(_ALL == 0, 0, np.where(_ALL > 0, size, -size))


def _product(a: Array, b: Array | int) -> Array:
    """a * b / 2**15, halves up."""
    product: Array = a * b + (1 << 14)
    return np.asarray(np.clip(product >> 15, _LOW, _HIGH))


def _divided(x: Array, bits: int) -> Array:
    mask = (1 << bits) - 1
    return np.asarray((x >> bits) + ((x & mask) > (mask >> 1) + (x < 0)))


def _multiplied(x: Array, bits: int) -> Array:
    return np.asarray(np.clip(x << bits, _LOW, _HIGH))


def _narrow(number: int) -> int:
    """A number of Q.31 as one of Q.15."""
    return int(_divided(np.asarray(number, np.int64), 16))


def _exp_of_negative(a: Array, integer_bits: int) -> Array:
    """e**a, a <= 0."""
    point = 15 - integer_bits
    a = np.maximum(a, _LOW)
    quarter = 1 << (point - 2)
    rest = (a & (quarter - 1)) - quarter
    whole = rest - a
    out = _exp_of_quarter(_multiplied(rest, integer_bits))
    for power in range(-2, 5):
        if integer_bits > power:
            factor = _narrow(round(math.exp(-(2.0**power)) * 2**31))
            out = np.where(whole & (1 << (point + power)), _product(out, factor), out)
    if integer_bits > 5:
        out = np.where(a < -(1 << (point + 5)), 0, out)
    return np.where(a == 0, _ONE, out)


def _exp_of_quarter(a: Array) -> Array:
    """e**a, -1/4 <= a < 0, by a series around -1/8."""
    term = _narrow(round(math.exp(-1 / 8) * 2**31))
    third = _narrow(round(2**31 / 3))
    x = a + (1 << 12)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    terms = _product(_divided(fourth, 2) + cube, third) + square
    return np.asarray(np.clip(term + _product(x + _divided(terms, 1), term), _LOW, _HIGH))


def _newton(a: Array) -> Array:
    """2 / (1 + a) in Q2.13, for a of Q0.15, 0 <= a <= 1."""
    half = (a + _ONE + 1) >> 1
    start, slope = _narrow(round(48 / 17 * 2**29)), _narrow(round(32 / 17 * 2**29))
    x = start + _product(half, -slope)
    for _ in range(3):
        x = x + _multiplied(_product(x, (1 << 13) - _product(half, x)), 2)
    return x


def _one_over_one_plus(a: Array) -> Array:
    return _multiplied(_newton(a), 1)
