"""Sums of values times factors, not computed yet: scales, biases and residuals fold into one.

In: bytes, sums of their products, floats. Out: nodes of a new graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.int8.plan import Steps
from autotune.graph.ir import Node
from autotune.graph.rewriter import Rewriter
from autotune.sizes import is_size
from autotune.types import Array

_NEAR = 1e-3
"""How far from a whole number a shift may be that counts as one: float32 rounds."""
_LARGEST = 2.0**21
"""Shifts from here on are known by less than half a unit no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """factor * (value - zero): one factor per channel, or one for all, in float64. The zero is a
    whole number, and that of bytes."""

    value: str
    factor: Array
    zero: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSum:
    """The sum of the terms and of `shift` (per channel, or one for all). A value may be bytes, or
    32-bit sums of products of bytes, or floats."""

    terms: tuple[Term, ...]
    shift: Array

    @staticmethod
    def of_bytes(value: str, steps: Steps) -> LinearSum:
        """The numbers that bytes stand for."""
        term = Term(value=value, factor=np.array([steps.step]), zero=steps.zero)
        return LinearSum(terms=(term,), shift=np.zeros(1))

    @staticmethod
    def of_float(value: str) -> LinearSum:
        return LinearSum(terms=(Term(value=value, factor=np.ones(1)),), shift=np.zeros(1))

    def __add__(self, other: LinearSum) -> LinearSum:
        return LinearSum(terms=self.terms + other.terms, shift=self.shift + other.shift)

    def shifted(self, by: Array) -> LinearSum:
        return LinearSum(terms=self.terms, shift=self.shift + by)

    def scaled(self, by: Array) -> LinearSum:
        terms = tuple(replace(t, factor=t.factor * by) for t in self.terms)
        return LinearSum(terms=terms, shift=self.shift * by)

    def with_zeros_in_shift(self) -> LinearSum:
        """The same sum by fewer operations, for what is rounded afterwards: a product with the
        zero is rounded, so that bytes at theirs are numbers next to 0."""
        low = sum((-t.factor * float(t.zero) for t in self.terms), self.shift)
        return LinearSum(terms=tuple(replace(t, zero=0) for t in self.terms), shift=low)


def materialized(new: Rewriter, form: LinearSum, like: Node) -> str:
    """The sum as a float32 value. Numbers are constants, one per channel, also where these are
    equal: layers that differ in their steps alone stay one task."""
    # What is computed by a contraction comes first: its kernel computes the rest.
    ranks = {"int32": 0, "float32": 1}
    terms = sorted(form.terms, key=lambda t: ranks.get(new.types[t.value].dtype, 2))
    total = ""
    for number, term in enumerate(terms):
        part = _product(new, term, like)
        total = new.emit("add", [total, part], like) if number else part
        if number == 0 and form.shift.any():
            shift = _per_channel(new, form.shift, total, f"{like.output}.shift")
            total = new.emit("add", [total, shift], like)
    return total


def _product(new: Rewriter, term: Term, like: Node) -> str:
    value = term.value
    if new.types[value].dtype != "float32":
        value = new.emit("to_float32", [value], like)
    if term.zero:
        zero = _per_channel(new, np.array([-float(term.zero)]), value, f"{like.output}.zero")
        value = new.emit("add", [value, zero], like)
    if (term.factor == 1).all():
        return value
    factor = _per_channel(new, term.factor, value, f"{like.output}.factor")
    return new.emit("mul", [value, factor], like)


def _per_channel(new: Rewriter, array: Array, value: str, stem: str) -> str:
    return new.constant(_spread(array, new.shape(value)).astype(np.float32), stem)


def _spread(array: Array, shape: Sequence[int]) -> Array:
    """A number for each channel of a value; the number alone of a scalar, which has none, and
    where a run decides how many there are."""
    if not shape:
        return array.reshape(())
    return array if is_size(shape[-1]) else np.broadcast_to(array, shape[-1:])


def as_bytes(new: Rewriter, form: LinearSum, steps: Steps, like: Node) -> str:
    """The sum as bytes: divided by the step, rounded with halves to even, and only then moved by
    the zero point; those below and above their range become 0 and 255."""
    value = new.emit("round", [_counts(new, form, steps, like)], like)
    if steps.zero:
        zero = _per_channel(new, np.array([float(steps.zero)]), value, f"{like.output}.zero")
        value = new.emit("add", [value, zero], like)
    value = new.emit("clip", [value], like, min=0, max=255)
    return new.emit("to_uint8", [value], like)


def _counts(new: Rewriter, form: LinearSum, steps: Steps, like: Node) -> str:
    """The sum in steps, before rounding. Of a float the quotient itself: what a product with the
    reciprocal misses by decides beside ties."""
    form, inverse = form.with_zeros_in_shift(), np.array([1 / steps.step])
    if len(form.terms) != 1:
        return materialized(new, form.scaled(inverse), like)
    (term,) = form.terms
    plain = not form.shift.any() and bool((term.factor == 1).all())
    if plain and new.types[term.value].dtype == "float32" and not _power_of_two(steps.step):
        step = _per_channel(new, np.array([steps.step]), term.value, f"{like.output}.step")
        return new.emit("div", [term.value, step], like)
    shift = _whole_shift(form) if new.types[term.value].dtype == "int32" else None
    if shift is None:
        return materialized(new, form.scaled(inverse), like)
    value = term.value
    if shift.any():
        counts = _spread(shift, new.shape(value)).astype(np.int32)
        value = new.emit("add", [value, new.constant(counts, f"{like.output}.shift")], like)
    # Rounded where ONNX Runtime rounds: the step of the products, then its ratio to the result's.
    factor = term.factor.astype(np.float32) / np.float32(steps.step)
    return _product(new, Term(value=value, factor=factor.astype(np.float64)), like)


def _power_of_two(step: float) -> bool:
    return math.frexp(step)[0] == 0.5


def _whole_shift(form: LinearSum) -> Array | None:
    """The shift of sums of bytes in units of these sums, where it is whole numbers: biases that
    are quantized, and zero points. None where it is not, or too large to tell."""
    (term,) = form.terms
    if not term.factor.all():
        return None
    counts = form.shift / term.factor
    whole = np.rint(counts)
    slack = np.maximum(_NEAR, np.abs(whole) * 2.0**-22)
    good = (np.abs(counts - whole) <= slack) & (np.abs(whole) < _LARGEST)
    return whole if bool(good.all()) else None
