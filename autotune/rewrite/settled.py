"""Rewrites that are never more work, taken wherever they can be: a slice goes through one operator
after another to what it is of, and every step alone is too small to be weighed.

In: a graph, rewrites of which some are `always`. Out: the graph without any such place, and the
steps that led there. Whether it is faster is asked once, at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.common_subexpressions import ShareCommonSubexpressions
from autotune.ops import OPS
from autotune.rewrite.apply import apply
from autotune.rewrite.attributes import normal
from autotune.rewrite.match import Finder, Match, inside
from autotune.rewrite.rule import Rewrite

_SHARED = ShareCommonSubexpressions()
_MOST_STEPS = 256
"""Steps, at most: more than any graph that was met takes."""


def settled(graph: Graph, rewrites: Sequence[Rewrite]) -> tuple[Graph, list[list[Match]]]:
    """The graph behind all steps, and the matches of each."""
    taken: list[list[Match]] = []
    wanted = [r for r in rewrites if r.always]
    while len(taken) < _MOST_STEPS:
        step = next(_steps(graph, wanted), None)
        if step is None:
            break
        graph, matches = step
        graph = _SHARED.run(graph)  # equal slices of a value that two read are one reader
        taken.append(matches)
    return graph, taken


def _steps(graph: Graph, rewrites: Sequence[Rewrite]) -> Iterator[tuple[Graph, list[Match]]]:
    """(graph, matches) behind each rewrite that can be taken."""
    finder = Finder(graph)
    for rewrite in rewrites:
        matches = apart([m for m in finder.matches(rewrite) if _alone(m, finder)], finder)
        after = apply(graph, matches) if matches else None
        if after is not None:
            yield after, matches


def _alone(match: Match, finder: Finder) -> bool:
    """Whether nothing else reads what the left side covers."""
    covered = inside(match, finder)
    kept = {value for _, value in finder.graph.outputs}
    within = covered - {node.output for node in match.roots}
    return kept.isdisjoint(within) and all(
        node.output in covered for value in within for node in finder.readers.get(value, [])
    )


def apart(matches: Sequence[Match], finder: Finder) -> list[Match]:
    """The first of those that overlap; several roots at a time only where all are apart."""
    taken: set[str] = set()
    out: list[Match] = []
    for match in matches:
        covered = inside(match, finder)
        if taken.isdisjoint(covered):
            taken |= covered
            out.append(match)
    return out


def fewer_of_the_same(before: Graph, after: Graph) -> bool:
    """Whether every kernel of one graph is one of the other's, which has more: what is left out
    costs nothing, whatever predictions say."""
    one, other = _operators(before), _operators(after)
    return other < one


def _operators(graph: Graph) -> Counter[tuple[object, ...]]:
    """How often there is each operator over such types; views come at no cost."""

    def kind(node: Node) -> tuple[object, ...]:
        types = tuple(graph.types[i] for i in node.inputs)
        attrs = normal(node.op, node.attributes, [t.shape for t in types])
        return node.op, tuple(sorted(attrs.items())), types

    costly = (n for n in graph.nodes if n.inputs and OPS.get(n.op).kind != "view")
    return Counter(map(kind, costly))
