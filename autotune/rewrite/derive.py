"""The second proof of a rewrite: its sides follow from one another by properties of operators.

In: a rewrite, properties (equations themselves, few operators each, that tests check by numpy).
Out: a `Derivation`, or the reason why there is none. Sides become terms of an e-graph, which
properties are added to until both are in one class (equality saturation; egglog, Zhang et al.
2023, the extra [rewrites]). Sizes are random large numbers: nothing is computed with tensors, and
what holds at them by the properties' own arithmetic holds as polynomials do. No random tensor, and
no operator's reference, takes part: what both proofs have in common is the rewrite's text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import ConfigError, ModelError
from autotune.ops import OPS
from autotune.rewrite.apply import build
from autotune.rewrite.boxes import BoxProof, prove_box
from autotune.rewrite.egraph import (
    COMMUTES,
    Sides,
    Variant,
    constructors,
    declarations,
    ruleset,
)
from autotune.rewrite.evaluate import Inference
from autotune.rewrite.files import read
from autotune.rewrite.properties import Translated, translated
from autotune.rewrite.prove import Instance, UnprovenError, instances_of, operators
from autotune.rewrite.rule import Rewrite

PROPERTIES = Path(__file__).parent / "properties.rewrites"
POINTS = 2
"""Random sizes that a rewrite is derived at."""
_LARGEST = 1 << 12
"""Sizes are drawn from below this."""
_HELPERS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"expand"}),
    frozenset({"expand", "reshape", "matmul"}),
    frozenset({"expand", "reshape", "transpose", "add", "mul", "neg"}),
    frozenset(
        {"expand", "reshape", "transpose", "add", "mul", "neg", "slice", "concat", "matmul"}
    ),
)
"""Operators that a derivation may lead over though no side has them: few, and then more."""
_ELEMENTWISE = frozenset({"expand", "add", "mul", "neg"})
"""Those of rewrites whose operators are all elementwise."""
_ROUNDS = 6
"""Rounds of saturation."""
_MOST_GRAPHS = 16
"""E-graphs with rules that are kept."""
_MOST_NODES = 2_000
"""Rows of an e-graph's tables (terms and shapes) from which on it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a derivation is looked for. `helpers`: operators that it may lead over though no
    side has them, a few and then more; `nodes`: rows of an e-graph's tables from which on it is
    given up, asked after each property of a round, since a whole round of all of them may multiply
    them without end; `rounds`: of saturation; `graphs`: e-graphs with rules that are kept."""

    helpers: tuple[frozenset[str], ...] = _HELPERS
    nodes: int = _MOST_NODES
    rounds: int = _ROUNDS
    graphs: int = _MOST_GRAPHS
    spare: bool = False
    """Whether it leads over broadcasts only where a side has one."""


_ENOUGH = Effort()


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """`properties`: how many could be used; `rounds`: of saturation, at most."""

    rewrite: str
    properties: int
    rounds: int

    def __str__(self) -> str:
        return (
            f"{self.rewrite}: derived within {self.rounds} rounds of {self.properties} properties"
        )


@functools.cache
def properties() -> tuple[Rewrite, ...]:
    """What operators are taken to obey."""
    return read(PROPERTIES)


_operators = functools.lru_cache(maxsize=4096)(operators)


def derive(rewrite: Rewrite, given: Sequence[Rewrite] | None = None) -> Derivation | BoxProof:
    """The derivation of one rewrite, from these properties or those that ship."""
    return Deriver(properties() if given is None else given).derive(rewrite)


class Deriver:
    """Derives one rewrite after another from some properties; those over the same operators share
    the rules that were read for them."""

    def __init__(self, given: Sequence[Rewrite], effort: Effort = _ENOUGH) -> None:
        self.given = given
        self.effort = effort
        self._graphs: dict[tuple[str, ...], Any] = {}

    def derive(self, rewrite: Rewrite, seed: int = 0) -> Derivation | BoxProof:
        """The derivation. Raises UnprovenError where the properties do not lead from one side to
        the other; ConfigError without egglog. What is right on a box alone follows from no
        properties: there it is the box that is proven, by few places of large images."""
        if rewrite.box:
            return prove_box(rewrite, seed)
        rng = np.random.default_rng(seed)
        rounds: list[int] = []
        used = 0
        for instance in instances_of(rewrite, rng, POINTS, largest=_LARGEST):
            facts = _facts(rewrite, instance)
            found = None
            tried: set[frozenset[str]] = set()
            for helpers in _helpers(rewrite, facts, self.effort):
                rules = _rules(rewrite, self.given, facts, helpers)
                texts = frozenset(r.text for r in rules)
                if texts in tried:
                    continue  # these operators have no more properties
                tried.add(texts)
                used = max(used, len({r.name for r in rules}))
                found = self._saturated(facts, rules)
                if found is not None:
                    break
            if found is None:
                raise UnprovenError(f"{rewrite.name}: the sides do not follow from properties")
            rounds.append(found)
        if not rounds:
            raise UnprovenError(f"{rewrite.name}: no sizes are legal")
        return Derivation(rewrite=rewrite.name, properties=used, rounds=max(rounds))

    def _saturated(self, facts: Sides, rules: Sequence[Translated]) -> int | None:
        """Rounds until the goals hold; None where they do not."""
        key = tuple(r.text for r in rules)
        variants = [v for rule in rules for v in rule.variants]
        if key not in self._graphs:
            if len(self._graphs) == self.effort.graphs:
                self._graphs.pop(next(iter(self._graphs)))
            names = dict.fromkeys(ruleset(r.name) for r in rules)
            self._graphs[key] = _EGraph([*declarations(variants, names), *key], names)
        graph = self._graphs[key]
        graph.run(["(push)"])
        try:
            return _rounds(graph, facts, frozenset(variants), self.effort)
        finally:
            graph.run(["(pop)"])


class _EGraph:
    """egglog's, with a program in it."""

    def __init__(self, program: Sequence[str], rulesets: Iterable[str]) -> None:
        try:
            from egglog import bindings
        except ImportError:
            raise ConfigError(
                "derivations need egglog: pip install 'autotune-compiler[rewrites]'"
            ) from None
        self._error = bindings.EggSmolError
        self._graph: Any = bindings.EGraph()
        self.run(program)
        self._steps = [
            self._graph.parse_program(f"(run {name} 1)") for name in (COMMUTES, *rulesets)
        ]
        self._sizes = self._graph.parse_program("(print-size)")

    def run(self, commands: Iterable[str]) -> None:
        """Runs commands, each read by itself: what is read keeps a copy of all that it was read
        with for each of its parts, so that a program of a hundred rules would take gigabytes."""
        for command in commands:
            self._graph.run_program(*self._graph.parse_program(command))

    def round(self, most: int) -> bool | None:
        """Applies each property once, one after the other. Whether any added something; None where
        there were more rows than `most` behind one of them, and the rest is not applied: what one
        property adds to a graph of few rows is bounded, what all do after each other is not."""
        grown = False
        for step in self._steps:
            (done,) = self._graph.run_program(*step)
            if done.report.updated:
                grown = True
                (sizes,) = self._graph.run_program(*self._sizes)
                if sum(count for _, count in sizes.sizes) > most:
                    return None
        return grown

    def holds(self, checks: Sequence[str]) -> bool:
        """Whether checks pass."""
        try:
            self.run(checks)
        except self._error as error:
            if "Check failed" in str(error):
                return False
            raise
        return True


def _rounds(
    graph: _EGraph, facts: Sides, declared: frozenset[Variant], effort: Effort
) -> int | None:
    more = [v for v in facts.variants if v not in declared]
    graph.run([*constructors(more), *facts.lines])
    wanted = [f"(check (= {one} {other}))" for one, other in facts.goals]
    if graph.holds(wanted):
        return 0
    for count in range(1, effort.rounds + 1):
        grown = graph.round(effort.nodes)
        if grown is not False and graph.holds(wanted):
            return count
        if not grown:
            break
    return None


def _facts(rewrite: Rewrite, instance: Instance) -> Sides:
    """Both sides at an instance, as terms with shapes."""
    inference = Inference(instance.shapes)
    facts = Sides()
    names = {n: facts.leaf(n, shape) for n, shape in instance.shapes.items()}
    terms = dict(names)

    def emit(op: str, inputs: Sequence[str], attrs: dict[str, Any]) -> str:
        name = inference.emit(op, inputs, attrs)
        shapes = [inference.types[i].shape for i in inputs]
        made = facts.term(op, [terms[i] for i in inputs], attrs, shapes,
                          inference.types[name].shape)  # fmt: skip
        terms[name] = made
        return name

    own = {n: n for n in instance.shapes}
    try:
        for left, right in zip(rewrite.left, rewrite.right, strict=True):
            ends = [
                build(rewrite, [side], instance.symbols, own, emit)[0] for side in (left, right)
            ]
            facts.goals.append((terms[ends[0]], terms[ends[1]]))
    except ModelError as error:
        raise UnprovenError(f"{rewrite.name}: {error}") from None
    return facts


def _helpers(rewrite: Rewrite, facts: Sides, effort: Effort) -> tuple[frozenset[str], ...]:
    """Those that may help: without a view or a sum, no other one comes about."""
    if effort.spare:
        broadcasts = any(name.startswith("expand_") for name, _ in facts.variants)
        more = frozenset({"expand"}) if broadcasts else frozenset()
        return tuple(helpers | more for helpers in effort.helpers)
    plain = all(OPS.get(op).kind == "elementwise" for op in operators(rewrite))
    return (_ELEMENTWISE,) if plain else effort.helpers


def _rules(
    rewrite: Rewrite, given: Sequence[Rewrite], facts: Sides, helpers: frozenset[str]
) -> list[Translated]:
    """The properties that could be used: those over operators that there are, and these."""
    there = operators(rewrite) | helpers
    usable = [p for p in given if _operators(p) <= there]
    ranks = frozenset(facts.ranks | ({1, 2} if "matmul" in helpers else set()))
    perms = facts.perms()
    found = {t.text: t for p in usable for t in translated(p, ranks, perms)}
    return list(found.values())
