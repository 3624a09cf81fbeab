"""Rewrites of several results: terms that are parts of one, which is computed once.

In: a theme's pairs of equal terms. Out: for every term of which two parts are known by other terms
(`slice(matmul(a, concat(b, c)))` is `matmul(a, b)`, or `matmul(a, c)`), both pairs: from the terms
to parts of the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotune.rewrite.enumeration import Enumerated, Pair, light
from autotune.rewrite.parse import leaves
from autotune.rewrite.pruning import renamed_key
from autotune.rewrite.rule import Application

Several = tuple[Pair, ...]
"""Pairs whose second terms are slices of one term; the first ones are what there is."""


def several_in(found: Iterable[Pair]) -> dict[str, Several]:
    """Those of a theme, each once, in order."""
    parts: dict[str, list[Pair]] = {}
    for pair in found:
        one = pair.one.term
        if isinstance(one, Application) and one.op == "slice" and pair.other.args:
            parts.setdefault(str(one.args[0]), []).append(Pair(pair.header, pair.other, pair.one))
    out: dict[str, Several] = {}
    for of_one in parts.values():
        for first, second in itertools.permutations(of_one, 2):
            if _adjacent(first.other, second.other) and _is_new(first, second):
                both = (first, second)
                out.setdefault(renamed_key(*both), tuple(map(light, both)))
    return _outermost(out)


def _adjacent(first: Enumerated, second: Enumerated) -> bool:
    """Whether two slices of a term are its two parts along a dimension."""
    one, other = dict(first.attrs), dict(second.attrs)
    whole = first.args[0].shape
    places = [d for d in range(len(whole)) if one["starts"][d] != other["starts"][d]]
    if len(places) != 1:
        return False
    (axis,) = places
    return bool(
        one["starts"][axis] == 0
        and one["stops"][axis] == other["starts"][axis]
        and other["stops"][axis] == whole[axis]
    )


def _is_new(first: Pair, second: Pair) -> bool:
    """Whether the terms share a value, are no parts of each other, and have all that the whole is
    of."""
    one, other = first.one.term, second.one.term
    inside = str(one) in str(other) or str(other) in str(one)
    shared, every = leaves(one) & leaves(other), leaves(one) | leaves(other)
    return bool(shared) and not inside and leaves(first.other.term) <= every


def _outermost(found: Mapping[str, Several]) -> dict[str, Several]:
    """Without those where an operator of one operand comes last on all sides, before which the
    same was found: it may be moved over the slices afterwards."""
    return {k: s for k, s in found.items() if not any(k in found for k in _inner(s))}


def _inner(several: Several) -> Iterator[str]:
    inner = []
    for pair in several:
        whole = pair.other.args[0]
        if len(pair.one.args) != 1 or _root(pair.one) != _root(whole):
            return
        cut: Any = pair.other.term
        under = whole.args[0]
        term = Application(cut.op, (under.term,), cut.attrs)
        changed = Enumerated(
            term, pair.other.shape, pair.other.size - 1, 0, (under,), pair.other.attrs
        )
        inner.append(Pair(pair.header, pair.one.args[0], changed))
    yield renamed_key(*inner)


def _root(term: Enumerated) -> tuple[str, object] | None:
    """The last operator, and its attributes."""
    return (term.term.op, term.attrs) if isinstance(term.term, Application) else None
