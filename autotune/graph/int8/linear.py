"""Sums of values times factors, not computed yet: scales, biases and residuals fold into one.

In: bytes, sums of their products, floats. Out: nodes of a new graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.int8.plan import Steps
from autotune.graph.ir import Node
from autotune.graph.passes._rewrite import Rewriter
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """factor * value: one factor per channel, or one for all, in float64."""

    value: str
    factor: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """The sum of the terms and of `shift` (per channel, or one for all). A value may be bytes, or
    32-bit sums of products of bytes, or floats."""

    terms: tuple[Term, ...]
    shift: Array

    @staticmethod
    def of_bytes(value: str, steps: Steps) -> Linear:
        """The numbers that bytes stand for."""
        return Linear(
            terms=(Term(value=value, factor=np.array([steps.step])),),
            shift=np.array([steps.low]),
        )

    @staticmethod
    def of_float(value: str) -> Linear:
        return Linear(terms=(Term(value=value, factor=np.ones(1)),), shift=np.zeros(1))

    def __add__(self, other: Linear) -> Linear:
        return Linear(terms=self.terms + other.terms, shift=self.shift + other.shift)

    def shifted(self, by: Array) -> Linear:
        return Linear(terms=self.terms, shift=self.shift + by)

    def scaled(self, by: Array) -> Linear:
        terms = tuple(Term(value=t.value, factor=t.factor * by) for t in self.terms)
        return Linear(terms=terms, shift=self.shift * by)


def materialized(new: Rewriter, form: Linear, like: Node) -> str:
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
    if (term.factor == 1).all():
        return value
    factor = _per_channel(new, term.factor, value, f"{like.output}.factor")
    return new.emit("mul", [value, factor], like)


def _per_channel(new: Rewriter, array: Array, value: str, stem: str) -> str:
    channels = new.shape(value)[-1:]
    return new.constant(np.broadcast_to(array, channels or (1,)).astype(np.float32), stem)


def as_bytes(new: Rewriter, form: Linear, steps: Steps, like: Node) -> str:
    """The sum rounded to bytes: those below and above their range become 0 and 255."""
    counted = form.scaled(np.array([1 / steps.step])).shifted(np.array([float(steps.zero)]))
    value = materialized(new, counted, like)
    value = new.emit("round", [value], like)
    value = new.emit("clip", [value], like, min=0, max=255)
    return new.emit("to_uint8", [value], like)
