"""Limits of indices by interval analysis, under guards. In: an index, the extents of loops, bounds
that hold. Out: the least and the largest value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.program.affine import clamp
from autotune.program.ir import Atom, Bound, Clamp, FloorDiv, Index, LoadIndex, Mod


def guarded_interval(
    value: Index, loops: Mapping[str, int], guards: tuple[Bound, ...]
) -> tuple[int, int]:
    """Limits of an index where all guards hold, both included; empty (lo > hi) if never: of the
    index as it is, with quotients of quotients as one, with whole steps inside of quotients."""
    if any(_never(guard, loops) for guard in guards):
        return 0, -1
    lo, hi = _interval(value, loops, guards)
    joined = _joined(value) if guards else value
    gathered = [_gathered(value, guard.index) for guard in guards]
    for other in {joined, *gathered} - {value}:
        a, b = _interval(other, loops, guards)
        lo, hi = max(lo, a), min(hi, b)
    return lo, hi


def _never(guard: Bound, loops: Mapping[str, int]) -> bool:
    """Whether a guard holds nowhere, as that of a constant outside its limits."""
    lo, hi = _sum_interval(guard.index, loops, ())
    return max(lo, guard.lo) >= min(hi + 1, guard.hi)


def _interval(
    value: Index, loops: Mapping[str, int], guards: tuple[Bound, ...]
) -> tuple[int, int]:
    """The index, or a multiple of it, is seen as k * guarded index + rest for every guard that
    shares an atom with it."""
    lo, hi = _sum_interval(value, loops, guards)
    multiplied = _multiplied(value)
    if multiplied != value:
        a, b = _sum_interval(multiplied, loops, guards)
        lo, hi = max(lo, a), min(hi, b)
    times = _whole_divisions(value) if guards else 1
    if times > 1:
        a, b = _interval(value * times, loops, guards)
        lo, hi = max(lo, -(-a // times)), min(hi, b // times)
    for number, guard in enumerate(guards):
        others = guards[:number] + guards[number + 1 :]
        for k in _factors(value, guard.index):
            a, b = _interval(value - guard.index * k, loops, others)
            limits = (k * guard.lo, k * (guard.hi - 1))
            lo, hi = max(lo, a + min(limits)), min(hi, b + max(limits))
        for times in _factors(guard.index, value) - {1, -1}:
            sign = 1 if times > 0 else -1
            a, b = _interval(value * abs(times) - guard.index * sign, loops, others)
            limits = (sign * guard.lo, sign * (guard.hi - 1))
            lo = max(lo, -(-(a + min(limits)) // abs(times)))
            hi = min(hi, (b + max(limits)) // abs(times))
    return lo, hi


def _joined(value: Index) -> Index:
    """The same with (x // a + y) // b written as (x + a * y) // (a * b): a guard may limit
    x + a * y, where the rows that a block's threads take are quotients."""
    if all(isinstance(atom, str) for atom, _ in value.terms):
        return value
    out = Index((), value.const)
    for atom, c in value.terms:
        out = out + _joined_atom(atom) * c
    return out


def _joined_atom(atom: Atom) -> Index:
    if isinstance(atom, str | LoadIndex):
        return Index(((atom, 1),))
    inner = _joined(atom.index)
    if isinstance(atom, Clamp):
        return clamp(inner, atom.lo, atom.hi)
    if isinstance(atom, Mod):
        return inner % atom.divisor
    quotients = [a for a, c in inner.terms if isinstance(a, FloorDiv) and c == 1]
    if len(quotients) != 1:
        return inner // atom.divisor
    (quotient,) = quotients
    rest = inner - Index(((quotient, 1),))
    return (quotient.index + rest * quotient.divisor) // (quotient.divisor * atom.divisor)


def _gathered(value: Index, guarded: Index) -> Index:
    """The same with k * (e // d) + k * m * a written as k * ((e + d * m * a) // d), where a guard
    limits what is then divided: the last of its values may be no multiple of d."""
    wanted = dict(guarded.terms)
    for atom, k in value.terms:
        if not isinstance(atom, FloorDiv):
            continue
        inside = dict(atom.index.terms)
        moved = Index(tuple(
            (a, c) for a, c in value.terms
            if a != atom and c % k == 0 and wanted.get(a) == c // k * atom.divisor
        ))  # fmt: skip
        if moved.terms and all(wanted.get(a) == c for a, c in inside.items()):
            whole = Index(tuple((a, c // k * atom.divisor) for a, c in moved.terms))
            rest = value - moved - Index(((atom, k),))
            return rest + ((atom.index + whole) // atom.divisor) * k
    return value


def _sum_interval(
    value: Index, loops: Mapping[str, int], guards: tuple[Bound, ...]
) -> tuple[int, int]:
    """The limits that the terms' own give."""
    lo = hi = value.const
    for atom, c in value.terms:
        a, b = _atom_interval(atom, loops, guards)
        lo += c * (a if c > 0 else b)
        hi += c * (b if c > 0 else a)
    return lo, hi


def _multiplied(value: Index) -> Index:
    """The same with d * (e // d) written as e - e % d: what else depends on e cancels."""
    out = Index((), value.const)
    for atom, c in value.terms:
        if isinstance(atom, FloorDiv) and c % atom.divisor == 0:
            out = out + (atom.index - Index(((Mod(atom.index, atom.divisor), 1),))) * (
                c // atom.divisor
            )
        else:
            out = out + Index(((atom, c),))
    return out


def _whole_divisions(value: Index) -> int:
    """What to multiply an index by so that its quotients are of whole divisors."""
    out = 1
    for atom, c in value.terms:
        if isinstance(atom, FloorDiv):
            out = math.lcm(out, atom.divisor // math.gcd(atom.divisor, c))
    return out


def _factors(value: Index, guarded: Index) -> set[int]:
    own = dict(value.terms)
    return {own[a] // c for a, c in guarded.terms if a in own and own[a] % c == 0}


def _atom_interval(
    atom: Atom, loops: Mapping[str, int], guards: tuple[Bound, ...]
) -> tuple[int, int]:
    if isinstance(atom, str):
        return 0, loops[atom] - 1
    if isinstance(atom, LoadIndex):
        return 0, atom.extent - 1
    lo, hi = _interval(atom.index, loops, guards)
    if isinstance(atom, Clamp):
        return min(max(lo, atom.lo), atom.hi), min(max(hi, atom.lo), atom.hi)
    if isinstance(atom, FloorDiv):
        return lo // atom.divisor, hi // atom.divisor
    if lo // atom.divisor == hi // atom.divisor:
        return lo % atom.divisor, hi % atom.divisor
    return 0, atom.divisor - 1
