"""Terms as egglog has them: a constructor for every operator and number of attributes, a fact for
every shape. Broadcasting is an operator of its own here, `expand`, so that elementwise operators
have operands of one shape and products one batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from autotune.graph.rewriter import COMMUTATIVE
from autotune.ops import OPS
from autotune.rewrite.attributes import normal
from autotune.rewrite.dims import RealSymbol, WordSymbol
from autotune.rewrite.symbolic_shapes import Shape

Variant = tuple[str, tuple[str, ...]]
"""A constructor: its name, and the sorts of what it takes."""
Make = Callable[[str, Sequence[str], Mapping[str, Any], Shape], str]
"""(operator, terms, attributes, the result's shape) -> its term."""
_SORTS: Mapping[type, str] = {
    int: "i64",
    bool: "i64",
    str: "String",
    WordSymbol: "String",
    float: "f64",
    RealSymbol: "f64",
}
_LARGEST_RANK = 8
COMMUTES = "commutes"
"""The ruleset that says of which operators operands may change places."""


def with_broadcasts(
    make: Make, op: str, terms: Sequence[str], attrs: Mapping[str, Any],
    *, shapes: Sequence[Shape], out: Shape,
) -> str:  # fmt: skip
    """The term of an operator whose operands may be smaller than its result."""
    if op == "expand":
        return terms[0] if shapes[0] == out else make(op, terms, {"shape": out}, out)
    wanted = list(shapes)
    if OPS.get(op).kind == "elementwise":
        wanted = [out] * len(shapes)
    if op == "matmul":
        wanted = [(*out[:-2], *s[-2:]) for s in shapes]
    wide = [
        t if s == w else make("expand", [t], {"shape": w}, w)
        for t, s, w in zip(terms, shapes, wanted, strict=True)
    ]
    return make(op, wide, normal(op, attrs, wanted), out)


def variant(op: str, operands: int, attrs: Mapping[str, Any]) -> tuple[Variant, list[Any]]:
    """The constructor of an operator with such attributes, and these one after the other."""
    name = f"{op}_{operands}"
    flat: list[Any] = []
    for key in sorted(attrs):
        items = attrs[key] if isinstance(attrs[key], tuple) else (attrs[key],)
        name += f"_{key}{len(items)}"
        flat += items
    sorts = tuple(_SORTS.get(type(item), "i64") for item in flat)
    return (name, ("Term",) * operands + sorts), flat


def ruleset(name: str) -> str:
    """The ruleset of a property: one each, so that a round may be left between two of them."""
    return f"by-{name}"


def literal(item: object) -> str:
    """A number or a word as egglog reads it."""
    if isinstance(item, str):
        return f'"{item}"'
    return repr(item) if isinstance(item, float) else str(int(item))  # type: ignore[call-overload]


def shape_fact(term: str, shape: Sequence[str]) -> str:
    """That a term has a shape, its dimensions being texts; a whole shape is one word."""
    if len(shape) == 1 and shape[0].startswith("*"):
        return f"(has {term} {shape[0][1:]})"
    return f"(has {term} (shape{len(shape)}{''.join(f' {d}' for d in shape)}))"


class Sides:
    """The terms of a rewrite's sides, as lines, and which should be equal."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.goals: list[tuple[str, str]] = []
        self.variants: dict[Variant, None] = {}
        self.ranks: set[int] = set()
        self._perms: set[tuple[int, ...]] = set()
        self._made: dict[str, str] = {}

    def leaf(self, name: str, shape: Shape) -> str:
        """A value that terms are over."""
        return self._line(f'(leaf "{name}")', shape)

    def term(
        self, op: str, terms: Sequence[str], attrs: Mapping[str, Any],
        shapes: Sequence[Shape], out: Shape,
    ) -> str:  # fmt: skip
        """An operator over terms."""
        return with_broadcasts(self._make, op, terms, attrs, shapes=shapes, out=out)

    def perms(self) -> frozenset[tuple[int, ...]]:
        """Orders of dimensions that may come about: those there, their inverses, and after one
        another."""
        found = set(self._perms)
        found |= {tuple(p.index(d) for d in range(len(p))) for p in found}
        for p, q in itertools.product(tuple(found), repeat=2):
            if len(p) == len(q):
                found.add(tuple(p[d] for d in q))
        return frozenset(found)

    def _make(self, op: str, terms: Sequence[str], attrs: Mapping[str, Any], out: Shape) -> str:
        made, flat = variant(op, len(terms), attrs)
        self.variants[made] = None
        if op == "transpose":
            self._perms.add(tuple(attrs["perm"]))
        if op == "matmul" and attrs.get("transpose_b"):  # a product with what is turned, otherwise
            self._perms.add((*range(len(out) - 2), len(out) - 1, len(out) - 2))
        return self._line(f"({' '.join([made[0], *terms, *map(literal, flat)])})", out)

    def _line(self, text: str, shape: Shape) -> str:
        if text not in self._made:
            name = self._made[text] = f"$t{len(self._made)}"
            self.ranks.add(len(shape))
            self.lines += [f"(let {name} {text})", shape_fact(name, [str(int(d)) for d in shape])]
        return self._made[text]


def declarations(variants: Iterable[Variant], rulesets: Iterable[str]) -> list[str]:
    """What a program begins with: sorts, rulesets and constructors."""
    shapes = (
        f"(constructor shape{rank} ({' '.join(['i64'] * rank)}) Shape)"
        for rank in range(_LARGEST_RANK + 1)
    )
    return [
        f"(sort Term) (sort Shape) (ruleset {COMMUTES})", "(constructor leaf (String) Term)",
        *shapes, "(relation has (Term Shape))", *(f"(ruleset {name})" for name in rulesets),
        *constructors(variants),
    ]  # fmt: skip


def constructors(variants: Iterable[Variant]) -> list[str]:
    """The constructors, and that operands of some commute."""
    lines = []
    for name, sorts in dict.fromkeys(variants):
        lines.append(f"(constructor {name} ({' '.join(sorts)}) Term)")
        if name.rsplit("_", 1)[0] in COMMUTATIVE and sorts == ("Term", "Term"):
            turned = f"((= e ({name} a b))) ((union e ({name} b a)))"
            lines.append(f"(rule {turned} :ruleset {COMMUTES})")
    return lines
