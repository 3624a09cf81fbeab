"""The proof of a rewrite by exact evaluation: both sides at random points, on a family of shapes.

In: a rewrite. Out: a `Proof`, or the reason why there is none. Instances draw every dimension and
attribute; at each, both sides are evaluated over the field of 2^61 - 1 elements. Were they
different polynomials of degree d, they would be equal there with probability d / (2^61 - 1) at
most. Rewrites that need to know which of two numbers is larger (a relu, a maximum) are evaluated
at whole numbers instead, at many points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.errors import ConfigError, ModelError
from autotune.rewrite import expressions
from autotune.rewrite.apply import build
from autotune.rewrite.arithmetic import PRIME, Residue, Rounding
from autotune.rewrite.evaluate import ORDERED, Inference, drawn, sides
from autotune.rewrite.rule import Application, Domain, Rewrite
from autotune.types import Array

INSTANCES = 12
"""Shapes and attributes that a rewrite is proven on."""
_TRIES = 20000
"""Draws until as many are legal."""
_DEGREE = 64
"""The largest degree of the polynomials that a few operators make."""
_POINTS = 72
"""Points of an instance where numbers are compared."""
_LEAST_SHARE = 1 / 16
"""Share of the points at which sides of up to four comparisons differ, if they do: every
combination of their outcomes is a region."""
_SPAN = 1 << 20
"""Whole numbers are drawn from below this, half of them negative."""
_SMALL_SPAN = 8
"""The same at some more points."""
_SMALL_POINTS = 16
"""These: where products are not always larger than their factors, and numbers are alike."""
_LARGEST_DIM = 4
"""Elements along a dimension of an instance, at most."""
_MOST_FREE_DIMS = 2
"""Dimensions that a variable number of them stands for, at most."""
_MOST_ELEMENTS = 500
"""Elements of a value of an instance, at most."""


class UnprovenError(ConfigError):
    """A rewrite whose sides differ, or that no proof is for: one line says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`error`: the probability, at most, that sides which differ were not told apart on some
    instance. `exact`: whether both sides round the same sums, so that nothing is lost."""

    rewrite: str
    instances: int
    points: int
    error: float
    exact: bool
    ordered: bool

    def __str__(self) -> str:
        how = "whole numbers" if self.ordered else "the field of 2^61 - 1"
        points = f"{self.points} point{'s' * (self.points > 1)} of {self.instances} shapes"
        exact = ", the same roundings" if self.exact else ""
        return f"{self.rewrite}: equal at {points} over {how}, error {self.error:.0e}{exact}"


@dataclass(frozen=True, slots=True)
class Instance:
    """A rewrite with a number for every symbol: shapes of its values."""

    symbols: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]


def prove(rewrite: Rewrite, seed: int = 0, instances: int = INSTANCES) -> Proof:
    """The proof. Raises UnprovenError where the sides differ, or too few instances are legal."""
    rng = np.random.default_rng(seed)
    found = list(instances_of(rewrite, rng, instances))
    if len(found) < instances:
        raise UnprovenError(
            f"{rewrite.name}: of {_TRIES} random shapes only {len(found)} are legal, "
            f"{instances} are needed: narrow its attributes, or say by 'draw' what they have to be"
        )
    ordered = any(op in ORDERED for op in operators(rewrite))
    opaque = not ordered or all(_equal(rewrite, i, Residue, rng) for i in found)
    if not ordered:
        for instance in found:
            if not _equal(rewrite, instance, Residue, rng):
                raise UnprovenError(f"{rewrite.name}: the sides differ, {_at(instance)}")
    elif not opaque:
        _compare_ordered(rewrite, found, rng)
    exact = rewrite.exact and all(_equal(rewrite, instance, Rounding, rng) for instance in found)
    if rewrite.exact and not exact:
        raise UnprovenError(f"{rewrite.name} is no exact one: its sides round other sums")
    points = 1 if opaque else _POINTS
    error = len(found) * _DEGREE / PRIME
    if not opaque:
        error = (1 - _LEAST_SHARE) ** (_POINTS * len(found))
    return Proof(
        rewrite=rewrite.name, instances=len(found), points=points, error=error, exact=exact,
        ordered=not opaque,
    )  # fmt: skip


def operators(rewrite: Rewrite) -> frozenset[str]:
    """Names of all operators of a rewrite."""
    found: set[str] = set()
    pending: list[Application | str] = [
        *rewrite.left,
        *rewrite.right,
        *(t for _, t in rewrite.lets),
    ]
    while pending:
        term = pending.pop()
        if isinstance(term, Application):
            found.add(term.op)
            pending += term.args
    return frozenset(found)


def _compare_ordered(rewrite: Rewrite, found: list[Instance], rng: np.random.Generator) -> None:
    for instance in found:
        for make in (*[_signed] * _POINTS, *[_near_zero] * _SMALL_POINTS):
            if not _equal(rewrite, instance, make, rng):
                raise UnprovenError(f"{rewrite.name}: the sides differ, {_at(instance)}")


def _signed(number: int) -> int:
    return number - _SPAN // 2


def _near_zero(number: int) -> int:
    return number % _SMALL_SPAN - _SMALL_SPAN // 2


def _equal(rewrite: Rewrite, instance: Instance, make: Any, rng: np.random.Generator) -> bool:
    ordered = make in (_signed, _near_zero)
    span = _SPAN if ordered else PRIME
    arrays = {n: drawn(s, make, rng, span) for n, s in instance.shapes.items()}
    try:
        left = sides(rewrite, rewrite.left, instance.symbols, arrays, ordered=ordered)
        right = sides(rewrite, rewrite.right, instance.symbols, arrays, ordered=ordered)
    except ModelError as error:
        if not ordered and any(op in ORDERED for op in operators(rewrite)):
            return False  # there is an order to ask
        raise UnprovenError(f"{rewrite.name}: {error}, {_at(instance)}") from None
    return all(_same(a, b) for a, b in zip(left, right, strict=True))


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.all(a == b))


def _at(instance: Instance) -> str:
    there = ", ".join(f"{n}={v}" for n, v in instance.symbols.items())
    return f"for {there}"


def instances_of(
    rewrite: Rewrite, rng: np.random.Generator, wanted: int, largest: int = _LARGEST_DIM
) -> Iterator[Instance]:
    """Random instances whose left side is legal and whose conditions hold, no two the same;
    dimensions from 1 to `largest`, of more than is evaluated where that is more than usual."""
    seen: set[str] = set()
    for _ in range(_TRIES):
        instance = _drawn(rewrite, rng, largest)
        if instance is None or repr(instance) in seen:
            continue
        run = Inference(instance.shapes)
        names = {n: n for n in instance.shapes}
        try:
            build(rewrite, rewrite.left, instance.symbols, names, run.emit)
        except ModelError:
            continue
        small = largest == _LARGEST_DIM
        if small and any(t.size > _MOST_ELEMENTS for t in run.types.values()):
            continue
        seen.add(repr(instance))
        yield instance
        if len(seen) == wanted:
            return


def _drawn(rewrite: Rewrite, rng: np.random.Generator, largest: int) -> Instance | None:
    symbols: dict[str, Any] = {}
    for p in rewrite.domains:
        symbols[p.name.removeprefix("*")] = _attribute(p, rng)
    dims = {d for v in rewrite.values for d in v.shape if not d.isdecimal()}
    given = dict(rewrite.drawn)
    for dim in sorted(dims - given.keys() - symbols.keys()):
        if dim.startswith("*"):
            rank = rng.integers(0, _MOST_FREE_DIMS + 1)
            symbols[dim[1:]] = tuple(int(e) for e in rng.integers(1, largest + 1, rank))
        elif dim not in symbols:
            symbols[dim] = int(rng.integers(1, largest + 1))
    try:
        for name, text in rewrite.drawn:
            symbols[name] = expressions.value(text, symbols)
        found = expressions.defined(rewrite.defines, symbols)
        if found is None:
            return None
        symbols = found
        if not all(expressions.value(text, symbols) for text in rewrite.where):
            return None
        shapes = {v.name: expressions.shape(v.shape, symbols) for v in rewrite.values}
    except expressions.NOTHING:
        return None
    return Instance(symbols, shapes)


def _attribute(domain: Domain, rng: np.random.Generator) -> Any:
    """One of the domain's words or numbers, or a few of them."""
    if domain.words:
        return str(rng.choice(domain.words))
    if domain.real:
        return 2.0 ** -float(rng.integers(1, 20))
    if domain.name.startswith("*"):
        count = rng.integers(0, _MOST_FREE_DIMS + 1)
        return tuple(int(n) for n in rng.integers(domain.low, domain.high + 1, count))
    return int(rng.integers(domain.low, domain.high + 1))
