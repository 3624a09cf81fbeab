"""Interval analysis of indices and simplification by it; what threads share.

In: an index and the loops' extents, or a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.program import ir
from autotune.program.affine import combined
from autotune.sizes import any_size, surely_at_most, surely_less

Ranges = Mapping[str, int]
"""Loop variable -> extent; its values are 0 .. extent-1."""


def interval(value: ir.Index, ranges: Ranges) -> tuple[int, int]:
    """Smallest and largest value, both included. Raises KeyError for an unknown variable."""
    lo = hi = value.const
    for atom, c in value.terms:
        a, b = _atom_interval(atom, ranges)
        lo += c * (a if c > 0 else b)
        hi += c * (b if c > 0 else a)
    return lo, hi


def _atom_interval(atom: ir.Atom, ranges: Ranges) -> tuple[int, int]:
    if isinstance(atom, str):
        return 0, ranges[atom] - 1
    if isinstance(atom, ir.LoadIndex):
        return 0, atom.extent - 1
    lo, hi = interval(atom.index, ranges)
    if isinstance(atom, ir.FloorDiv):
        return lo // atom.divisor, hi // atom.divisor
    if isinstance(atom, ir.Mod):
        if lo // atom.divisor == hi // atom.divisor:
            return lo % atom.divisor, hi % atom.divisor
        return 0, atom.divisor - 1
    if any_size((lo, hi, atom.lo, atom.hi)):
        return atom.lo, atom.hi
    return min(max(lo, atom.lo), atom.hi), min(max(hi, atom.lo), atom.hi)


def simplify(value: ir.Index, ranges: Ranges) -> ir.Index:
    """The same value with divisions, remainders and clamps resolved where the ranges allow it."""
    if all(isinstance(atom, str) for atom, _ in value.terms):
        return value
    return combined(((_simplify_atom(atom, ranges), c) for atom, c in value.terms), value.const)


def _simplify_atom(atom: ir.Atom, ranges: Ranges) -> ir.Index:
    if isinstance(atom, str):
        return ir.Index(((atom, 1),))
    if isinstance(atom, ir.LoadIndex):
        inner = tuple(simplify(i, ranges) for i in atom.indices)
        return ir.Index(((ir.LoadIndex(atom.buffer, inner, atom.extent), 1),))
    inside = simplify(atom.index, ranges)
    if isinstance(atom, ir.Clamp):
        lo, hi = interval(inside, ranges)
        below = surely_at_most(hi, atom.lo)
        if below or surely_at_most(atom.hi, lo):
            return ir.Index((), atom.lo if below else atom.hi)
        within = surely_at_most(atom.lo, lo) and surely_at_most(hi, atom.hi)
        return inside if within else ir.clamp(inside, atom.lo, atom.hi)
    multiple, rest = _split_multiple(inside, atom.divisor)
    lo, hi = interval(rest, ranges)
    if surely_at_most(0, lo) and surely_less(hi, atom.divisor):
        return multiple if isinstance(atom, ir.FloorDiv) else rest
    return (
        multiple + rest // atom.divisor if isinstance(atom, ir.FloorDiv) else rest % atom.divisor
    )


def _split_multiple(value: ir.Index, divisor: int) -> tuple[ir.Index, ir.Index]:
    """value = divisor * first + second, the second made of what is not divisible."""
    multiple = tuple((a, c // divisor) for a, c in value.terms if c % divisor == 0)
    rest = tuple((a, c) for a, c in value.terms if c % divisor)
    return ir.Index(multiple, value.const // divisor), ir.Index(rest, value.const % divisor)


def own_vars(indices: Sequence[ir.Index], guards: Sequence[ir.Bound] = ()) -> frozenset[str]:
    """Loop variables of an element's indices that tell elements apart. Those inside places read
    from memory do not, since places repeat; but a guard that takes only places of a range of its
    own, 0 <= place - n*e < n, tells those of e apart."""
    out: set[str] = set()
    for i in indices:
        if not reads_memory(i):
            out |= i.vars()
            continue
        for guard in guards:
            first = i - guard.index
            width = guard.hi - guard.lo
            begins = (first.const + guard.lo, *(c for _, c in first.terms))
            if not reads_memory(first) and all(b % width == 0 for b in begins):
                out |= first.vars()
    return frozenset(out)


def carried_vars(store: ir.Store) -> frozenset[str]:
    """Loop variables in the dimensions along which a store reads other elements of what it writes:
    its iterations there depend on those before."""
    return frozenset[str]().union(
        *(
            written.vars() | read.vars()
            for load in own_loads(store)
            for written, read in zip(store.indices, load.indices, strict=True)
            if written != read
        )
    )


def own_loads(store: ir.Store) -> list[ir.Load]:
    """The loads in a stored value of other elements of the buffer that it goes to."""
    left, out = [store.value], list[ir.Load]()
    while left:
        value = left.pop()
        if isinstance(value, ir.Load):
            if value.buffer == store.buffer and value.indices != store.indices:
                out.append(value)
        elif isinstance(value, ir.Apply):
            left += value.args
        elif isinstance(value, ir.Select):
            left += (value.then, value.other)
    return out


def reads_memory(value: ir.Index) -> bool:
    """Whether a place read from memory is part of an index."""
    return any(
        isinstance(atom, ir.LoadIndex) or (not isinstance(atom, str) and reads_memory(atom.index))
        for atom, _ in value.terms
    )


def always(bound: ir.Bound, ranges: Ranges) -> bool:
    """Whether the bound holds for every value of the loops."""
    lo, hi = interval(bound.index, ranges)
    return surely_at_most(bound.lo, lo) and surely_less(hi, bound.hi)


def never(bound: ir.Bound, ranges: Ranges) -> bool:
    """Whether the bound holds for no value of the loops."""
    lo, hi = interval(bound.index, ranges)
    return surely_less(hi, bound.lo) or surely_at_most(bound.hi, lo)


def recombine(value: ir.Index) -> ir.Index:
    """Put (e // d) * (d * k) + (e % d) * k back together as e * k: fused loops over dense data."""
    for atom, c in value.terms:
        if isinstance(atom, ir.Mod):
            whole = ir.FloorDiv(atom.index, atom.divisor)
            if (whole, c * atom.divisor) in value.terms:
                pair = ir.Index(((whole, c * atom.divisor),)) + ir.Index(((atom, c),))
                return recombine(value - pair + atom.index * c)
    return value


def is_shared(stmt: ir.Stmt) -> bool:
    """Whether threads share what is in a statement: a parallel loop, or memory around one."""
    if isinstance(stmt, ir.Alloc):
        return stmt.buffer.scope == "scratch" and any(is_shared(s) for s in stmt.body)
    return isinstance(stmt, ir.For) and stmt.kind == "parallel"
