"""Terms over a theme's values, up to so many operators, and which of them are equal.

In: a `Theme`. Out: pairs of terms that fingerprints say are equal: a fingerprint is what a term
is, exactly, at random points of the field (whole numbers, where an operator compares). Terms are
made of representatives only, the first one of every fingerprint, so that no pair has a part which
an earlier pair makes simpler.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.errors import ModelError
from autotune.graph.rewriter import COMMUTATIVE
from autotune.rewrite import expressions
from autotune.rewrite.arithmetic import PRIME, Residue
from autotune.rewrite.dims import symbol
from autotune.rewrite.evaluate import ORDERED, Evaluation, Inference, drawn
from autotune.rewrite.prove import Instance, instances_of
from autotune.rewrite.rule import Application, Declared, Rewrite
from autotune.rewrite.symbolic_shapes import Shape, shape_of
from autotune.rewrite.vocabulary import STAR, TriedOperator
from autotune.types import Array

_INSTANCES = 2
"""Shapes that terms are evaluated at."""
_INSTANCES_ORDERED = 8
"""The same where an operator compares: every outcome has to come about."""
_DRAWN = 240
"""Shapes from which these are taken: those that operators take, and of few ones."""
_MOST_ELEMENTS = 400
_SPAN = 1 << 20
"""Whole numbers are drawn from below this, half of them negative."""
_SMALL_SPAN = 8
"""The same of every other shape, where a product is not always larger than its factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Values and operators that are enumerated together. `header`: a rewrite's values, attributes
    and conditions; `cuts`: symbols of dimensions, and where each is cut; `most`: operators of a
    term."""

    name: str
    header: Rewrite
    operators: tuple[TriedOperator, ...]
    cuts: tuple[tuple[str, str], ...] = ()
    most: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class Enumerated:
    """`attrs` of the term's operator as values, `args` as terms, so that nothing is read again."""

    term: Application | str
    shape: Shape
    size: int
    number: int
    args: tuple[Enumerated, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()
    arrays: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two terms that seem to be equal, of which the second is not the larger one. `header`: the
    theme's."""

    header: Rewrite
    one: Enumerated
    other: Enumerated


def light(pair: Pair) -> Pair:
    """The pair without its terms' arrays."""
    return Pair(pair.header, _light(pair.one), _light(pair.other))


def _light(term: Enumerated) -> Enumerated:
    return dataclasses.replace(term, args=tuple(map(_light, term.args)), arrays=())


def symbolic(theme: Theme) -> dict[str, Any]:
    """The theme's symbols as Dims, for shapes."""
    out: dict[str, Any] = {"s": (STAR,)}
    for declared in theme.header.values:
        out |= {d: symbol(d) for d in declared.shape if d.isidentifier()}
    out |= {d.name: d.name if d.words else symbol(d.name) for d in theme.header.domains}
    return expressions.defined(theme.header.defines, out) or out


def pairs(theme: Theme, seed: int = 0) -> Iterator[Pair]:
    """What seems to be equal, in the order of sizes."""
    return _Enumeration(theme, seed).pairs()


class _Enumeration:
    def __init__(self, theme: Theme, seed: int) -> None:
        self.theme = theme
        self.rng = np.random.default_rng([seed, *theme.name.encode()])
        self.symbols = symbolic(theme)
        self.cuts = dict(theme.cuts)
        self.ordered = any(o.op in ORDERED for o in theme.operators)
        self.instances = self._instances()
        self.runs = [Evaluation({}, ordered=self.ordered) for _ in self.instances]
        self.by_size: list[list[Enumerated]] = [[]]
        self.known: dict[Any, Enumerated] = {}
        self.count = 0

    def _instances(self) -> list[Instance]:
        first = list(self._first())

        def ones(instance: Instance) -> tuple[int, int, int]:
            dims = [e for shape in instance.shapes.values() for e in shape]
            free = instance.symbols.get("s", (2,))
            refused = sum(not _takes(instance, *application) for application in first)
            return refused, dims.count(1) + 4 * (len(free) != 1), -len(set(dims))

        found = instances_of(self.theme.header, self.rng, _DRAWN)
        return sorted(found, key=ones)[: _INSTANCES_ORDERED if self.ordered else _INSTANCES]

    def _first(self) -> Iterator[tuple[str, tuple[str, ...], dict[str, str]]]:
        """(operator, values, attributes) of terms of one operator, as far as symbols tell."""
        shapes = {v.name: self._shape(v) for v in self.theme.header.values}
        for operator in self.theme.operators:
            for names in itertools.product(shapes, repeat=operator.operands):
                operands = [shapes[n] for n in names]
                for texts in operator.ways(operands, self.cuts):
                    try:
                        attrs = {n: expressions.value(t, self.symbols) for n, t in texts.items()}
                    except expressions.NOTHING:
                        continue
                    if shape_of(operator.op, operands, attrs) is not None:
                        yield operator.op, names, texts

    def _shape(self, declared: Declared) -> Shape:
        return tuple(
            STAR if d.startswith("*") else int(d) if d.isdecimal() else self.symbols[d]
            for d in declared.shape
        )

    def pairs(self) -> Iterator[Pair]:
        for declared in self.theme.header.values:
            arrays = tuple(
                self._drawn(instance.shapes[declared.name], small=bool(at % 2))
                for at, instance in enumerate(self.instances)
            )
            self.count += 1
            term = Enumerated(declared.name, self._shape(declared), 0, self.count, arrays=arrays)
            self._there(term)
        for size in range(1, self.theme.most + 1):
            self.by_size.append([])
            for operator in self.theme.operators:
                for args in self._operands(operator, size - 1):
                    yield from self._made(operator, args, size)

    def _drawn(self, shape: tuple[int, ...], *, small: bool) -> Array:
        if self.ordered:
            span = _SMALL_SPAN if small else _SPAN
            return drawn(shape, lambda n: n - span // 2, self.rng, span)
        return drawn(shape, Residue, self.rng, PRIME)

    def _operands(self, operator: TriedOperator, size: int) -> Iterator[tuple[Enumerated, ...]]:
        """Terms of so many operators in all, each pair of a commutative operator once."""
        for sizes in itertools.product(range(size + 1), repeat=operator.operands):
            if sum(sizes) != size:
                continue
            for args in itertools.product(*(self.by_size[n] for n in sizes)):
                if operator.op in COMMUTATIVE and args[0].number > args[1].number:
                    continue
                yield args

    def _made(
        self, operator: TriedOperator, args: tuple[Enumerated, ...], size: int
    ) -> Iterator[Pair]:
        shapes = [a.shape for a in args]
        for texts in operator.ways(shapes, self.cuts):
            try:
                attrs = {n: expressions.value(t, self.symbols) for n, t in texts.items()}
            except expressions.NOTHING:
                continue
            shape = shape_of(operator.op, shapes, attrs)
            if shape is None:
                continue
            arrays = self._evaluated(operator.op, args, texts)
            if arrays is None or not any(any(a.flat) for a in arrays):
                continue  # nothing, or nothing but zeros
            named = Application(
                operator.op, tuple(a.term for a in args), tuple(sorted(texts.items()))
            )
            self.count += 1
            term = Enumerated(
                named, shape, size, self.count, args, tuple(sorted(attrs.items())), arrays
            )
            first = self._there(term)
            if first is not term:
                yield Pair(self.theme.header, term, first)

    def _there(self, term: Enumerated) -> Enumerated:
        """The representative of what a term is: the term, if there was none."""
        key = (tuple(map(str, term.shape)), _fingerprint(term.arrays))
        if key not in self.known:
            self.known[key] = term
            self.by_size[term.size].append(term)
        return self.known[key]

    def _evaluated(
        self, op: str, args: Sequence[Enumerated], texts: Mapping[str, str]
    ) -> tuple[Array, ...] | None:
        found = []
        for at, (instance, run) in enumerate(zip(self.instances, self.runs, strict=True)):
            try:
                attrs = {n: expressions.value(t, instance.symbols) for n, t in texts.items()}
                found.append(run.result(op, [a.arrays[at] for a in args], attrs))
            except (ModelError, *expressions.NOTHING):
                return None
        return tuple(found)


def _takes(instance: Instance, op: str, names: Sequence[str], texts: Mapping[str, str]) -> bool:
    """Whether an operator takes values of these shapes."""
    try:
        attrs = {n: expressions.value(t, instance.symbols) for n, t in texts.items()}
        Inference(instance.shapes).emit(op, names, attrs)
    except (ModelError, *expressions.NOTHING):
        return False
    return True


def _fingerprint(arrays: Sequence[Array]) -> bytes:
    text = ";".join(f"{a.shape}{[getattr(v, 'number', v) for v in a.flat]}" for a in arrays)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
