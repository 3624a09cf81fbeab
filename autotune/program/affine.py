"""Indices: sums, divisions and remainders of loop variables. In: variables. Out: an Index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from autotune.sizes import any_size


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """index // divisor, rounding down."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Mod:
    """index % divisor, never negative."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Clamp:
    """index limited to lo .. hi, both included."""

    index: Index
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class LoadIndex:
    """An integer read from a buffer (gather): negatives count from the end, then 0 .. extent-1."""

    buffer: str
    indices: tuple[Index, ...]
    extent: int


Atom = str | FloorDiv | Mod | Clamp | LoadIndex


@dataclass(frozen=True, slots=True)
class Index:
    """Affine sum: const + sum of coefficient * atom. Build with `index`, `+` and `*`."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __add__(self, other: IndexLike) -> Index:
        other = index(other)
        if self.terms and other.terms:
            return affine([*self.terms, *other.terms], self.const + other.const)
        return Index(self.terms or other.terms, self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> Index:
        return self + index(other) * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        terms = tuple((a, c * factor) for a, c in self.terms) if factor else ()
        return Index(terms, self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        if all(c % divisor == 0 for _, c in self.terms):
            return Index(tuple((a, c // divisor) for a, c in self.terms), self.const // divisor)
        return Index(((FloorDiv(self, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index()
        if all(c % divisor == 0 for _, c in self.terms):
            return Index((), self.const % divisor)
        return Index(((Mod(self, divisor), 1),))

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, var: str) -> int:
        return next((c for a, c in self.terms if a == var), 0)

    def vars(self) -> frozenset[str]:
        """Every loop variable the index depends on, inside atoms too."""
        out: set[str] = set()
        for atom, _ in self.terms:
            if isinstance(atom, str):
                out.add(atom)
            elif isinstance(atom, LoadIndex):
                out.update(*(i.vars() for i in atom.indices))
            else:
                out |= atom.index.vars()
        return frozenset(out)

    def tables(self) -> frozenset[str]:
        """Buffers that the index, or an atom in it, is read from."""
        out: set[str] = set()
        for atom, _ in self.terms:
            if isinstance(atom, LoadIndex):
                out.add(atom.buffer)
                out.update(*(i.tables() for i in atom.indices))
            elif not isinstance(atom, str):
                out |= atom.index.tables()
        return frozenset(out)

    def reads(self, names: Set[str]) -> bool:
        """Whether the index depends on one of these loop variables."""
        for atom, _ in self.terms:
            if isinstance(atom, str):
                found = atom in names
            elif isinstance(atom, LoadIndex):
                found = any(i.reads(names) for i in atom.indices)
            else:
                found = atom.index.reads(names)
            if found:
                return True
        return False

    def substitute(self, env: Mapping[str, Index]) -> Index:
        """Replace loop variables by indices."""
        terms: list[tuple[Atom, int]] = []
        const = self.const
        for atom, c in self.terms:
            new = env.get(atom) if isinstance(atom, str) else _substitute_atom(atom, env)
            if new is None:
                terms.append((atom, c))
            else:
                const += new.const * c
                terms += [(a, k * c) for a, k in new.terms]
        return affine(terms, const)


IndexLike = Index | int | str


def index(value: IndexLike) -> Index:
    """An amount, a variable name or an Index, as an Index."""
    if isinstance(value, Index):
        return value
    return Index(((value, 1),)) if isinstance(value, str) else Index((), value)


def clamp(value: Index, lo: int, hi: int) -> Index:
    if value.is_const and not any_size((value.const, lo, hi)):
        return Index((), min(max(value.const, lo), hi))
    return Index(((Clamp(value, lo, hi), 1),))


def combined(parts: Iterable[tuple[Index, int]], const: int) -> Index:
    """The sum of indices by a coefficient each, and of a constant."""
    terms: list[tuple[Atom, int]] = []
    for part, factor in parts:
        const += part.const * factor
        terms += [(a, c * factor) for a, c in part.terms]
    return affine(terms, const)


def affine(terms: Iterable[tuple[Atom, int]], const: int) -> Index:
    """The sum of terms, in the one order that equal sums have: variables first."""
    terms = list(terms)
    if len(terms) < 2:
        return Index(tuple(terms) if terms and terms[0][1] else (), const)
    total: dict[Atom, int] = {}
    for atom, c in terms:
        total[atom] = total.get(atom, 0) + c
    kept = [(a, c) for a, c in total.items() if c]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Index(tuple(kept), const)


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    atom = term[0]
    return (0, atom) if isinstance(atom, str) else (1, repr(atom))


def _substitute_atom(atom: FloorDiv | Mod | Clamp | LoadIndex, env: Mapping[str, Index]) -> Index:
    if isinstance(atom, FloorDiv):
        return atom.index.substitute(env) // atom.divisor
    if isinstance(atom, Mod):
        return atom.index.substitute(env) % atom.divisor
    if isinstance(atom, Clamp):
        return clamp(atom.index.substitute(env), atom.lo, atom.hi)
    inner = tuple(i.substitute(env) for i in atom.indices)
    return Index(((LoadIndex(atom.buffer, inner, atom.extent), 1),))
