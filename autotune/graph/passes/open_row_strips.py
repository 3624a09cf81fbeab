"""Row strips of images whose sizes only a run knows. In: a graph of open sizes after the other
passes, and sizes of its range. Out: the same graph with chains of layers in strips, and at which
of these sizes that should gain.

The number of strips is the same at all sizes; `row_strips` says what strips are. Their heights are
of two kinds at most, so that few kernels do for all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import UndecidedError
from autotune.graph.ir import Graph, Node
from autotune.graph.passes._image_chain import ImageChain, image_chains
from autotune.graph.passes.row_strips import OUTGROWN, RowStrips
from autotune.graph.rewriter import Rewriter
from autotune.sizes import least, value_at

Sizes = Mapping[str, int]
LEAST_GAIN = 0.01
"""Share of what other chains gain that one more has to add: its strips are kernels to build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InStrips:
    """A graph in strips, and for every set of sizes whether it should take less time."""

    graph: Graph
    gains: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A chain in so many strips, and the cycles that these save at each set of sizes."""

    chain: ImageChain
    count: int
    gains: tuple[float, ...]

    @property
    def total(self) -> float:
        return _positive(self.gains)

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(node.output for node in self.chain.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRowStrips:
    """RowStrips for the sizes of a range, by what they should gain at some."""

    estimate: RowStrips = field(default_factory=RowStrips)

    def run(self, graph: Graph, drawn: Sequence[Sizes]) -> InStrips | None:
        """None where strips should gain at none of the drawn sizes."""
        chosen = self._chosen(graph, drawn)
        if not chosen:
            return None
        gains = [math.fsum(each) for each in zip(*(c.gains for c in chosen), strict=True)]
        return InStrips(graph=_emitted(graph, chosen), gains=tuple(g > 0 for g in gains))

    def _chosen(self, graph: Graph, drawn: Sequence[Sizes]) -> list[_Choice]:
        """Chains apart from one another, those that gain most first, as long as all of them
        together gain more."""
        there = [_graph_at(graph, sizes) for sizes in drawn]
        large = OUTGROWN * self.estimate.cache_bytes
        found = {c.nodes for known in there for c in image_chains(known, large)}
        every = [c for nodes in found if (c := self._choice(graph, there, nodes)) is not None]
        taken: list[_Choice] = []
        inside: set[str] = set()
        gains, total = (0.0,) * len(drawn), 0.0
        for choice in sorted(every, key=lambda c: (-c.total, c.chain.output)):
            more = tuple(a + b for a, b in zip(gains, choice.gains, strict=True))
            if _positive(more) > total * (1 + LEAST_GAIN) and not inside & choice.outputs:
                taken.append(choice)
                inside |= choice.outputs
                gains, total = more, _positive(more)
        return taken

    def _choice(
        self, graph: Graph, there: Sequence[Graph], nodes: tuple[Node, ...]
    ) -> _Choice | None:
        """The number of strips that gains most; None where no number divides all images."""
        chain = ImageChain(graph=graph, nodes=nodes)
        known = [ImageChain(graph=each, nodes=nodes) for each in there]
        found = [
            _Choice(chain, count, tuple(self._gain(at, count) for at in known))
            for count in self._counts()
            if _divides(chain, count)
        ]
        return max(found, key=lambda choice: choice.total, default=None)

    def _counts(self) -> Sequence[int]:
        given = self.estimate.strips
        return (given,) if given else range(2, self.estimate.most + 1)

    def _gain(self, chain: ImageChain, count: int) -> float:
        """Cycles that strips save at a size; no more than none where all results are small."""
        if self.estimate.strips:
            return 1.0
        gain = self.estimate.gain(chain, chain.even(count))
        large = OUTGROWN * self.estimate.cache_bytes
        return gain if max(chain.intermediates()) > large else min(gain, 0.0)


def _positive(gains: Sequence[float]) -> float:
    return math.fsum(max(0.0, gain) for gain in gains)


def _divides(chain: ImageChain, count: int) -> bool:
    """Whether there are so many strips, of two heights at most, at all sizes."""
    try:
        if chain.height * 2 % count != 0 or least(chain.height) < count:
            return False
        return bool([chain.needed(rows) for rows in chain.even(count)])
    except UndecidedError:
        return False


def _graph_at(graph: Graph, sizes: Sizes) -> Graph:
    """The graph with types of given sizes."""
    types = {
        value: dataclasses.replace(kind, shape=tuple(value_at(e, sizes) for e in kind.shape))
        for value, kind in graph.types.items()
    }
    return dataclasses.replace(graph, types=types)


def _emitted(graph: Graph, chosen: Sequence[_Choice]) -> Graph:
    ends = {choice.chain.output: choice for choice in chosen}
    inside = frozenset[str]().union(*(choice.outputs for choice in chosen))
    new = Rewriter(graph)
    for node in graph.nodes:
        if node.output in ends:
            chain, count = ends[node.output].chain, ends[node.output].count
            parts = [chain.emit(new, rows) for rows in chain.even(count)]
            new.replace(node.output, new.emit("concat", parts, node, axis=1))
        elif node.output not in inside:
            new.keep(node)
    return new.finish()
