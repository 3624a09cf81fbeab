"""Row strips of images whose sizes only a run knows. In: a graph of open sizes after the other
passes, and sizes of its range. Out: the same graph with chains of layers in strips, and at which
of these sizes that should gain.

Images of a batch run one after the other, each in strips of a number of rows that is the same at
all sizes: the program has one of the strips inside, which a run repeats (`chain_blocks`);
`rows` says what strips are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter
from autotune.graph.strips.chain_blocks import RowBlocks, emit_images, single
from autotune.graph.strips.image_chain import ImageChain, Rows, image_chains
from autotune.graph.strips.rows import OUTGROWN, RowStrips
from autotune.sizes import value_at

Sizes = Mapping[str, int]
LEAST_GAIN = 0.01
"""Share of what other chains gain that one more has to add: its strips are kernels to build."""
LARGEST_STRIP = 16.0
"""Sizes of a core's own cache from which on a strip gains nothing (measured: strips of 4.2 MB, 8
rows of mobilenetv2's at a width of 640, are as fast as those of 4 rows; Zen 4, 1 MB)."""
MOST_GRAPHS = 3
"""Graphs in strips of different chains: their calls are planned apart, their kernels shared."""
HEIGHTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Rows of strips that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InStrips:
    """Graphs in strips, and for every set of sizes the number of the one that should take the
    least time, from 1 on; 0 where the graph as it was should."""

    graphs: tuple[Graph, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A chain in strips of so many rows, and the cycles that these save at each set of sizes."""

    chain: ImageChain
    rows: int
    gains: tuple[float, ...]

    @property
    def total(self) -> float:
        return _positive(self.gains)

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(node.output for node in self.chain.nodes)

    def emit(self, chain: ImageChain, new: Rewriter) -> str:
        """The chain of one image in strips; returns the result."""
        strips = RowBlocks.of(chain, self.rows)
        assert strips is not None  # or else it was no choice
        return strips.emit(new)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRowStrips:
    """RowStrips for the sizes of a range, by what they should gain at some."""

    estimate: RowStrips = field(default_factory=lambda: RowStrips(outgrown=LARGEST_STRIP))
    rows: int = 0
    """So many rows in a strip of every chain, whatever that gains; 0: what should gain most."""

    def run(self, graph: Graph, drawn: Sequence[Sizes]) -> InStrips | None:
        """None where strips should gain at none of the drawn sizes. Of several chains, those of
        larger images gain at more sizes than others: graphs have the first of them, or more."""
        chosen = self._chosen(graph, drawn)
        if not chosen:
            return None
        sums = [[0.0] * len(drawn)]
        for choice in chosen:
            sums.append([a + b for a, b in zip(sums[-1], choice.gains, strict=True)])
        counts = _worthy(sums)
        numbers = [
            max(range(len(counts)), key=lambda n: sums[counts[n]][at])
            for at, _ in enumerate(drawn)
        ]
        graphs = tuple(_emitted(graph, chosen[:count]) for count in counts[1:])
        return InStrips(graphs=graphs, numbers=tuple(numbers))

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
        whole = [choice for choice in every if not _splits(choice, every)]
        for choice in sorted(whole, key=lambda c: (-c.total, c.chain.output)):
            more = tuple(a + b for a, b in zip(gains, choice.gains, strict=True))
            if _positive(more) > total * (1 + LEAST_GAIN) and not inside & choice.outputs:
                taken.append(choice)
                inside |= choice.outputs
                gains, total = more, _positive(more)
        return taken

    def _choice(
        self, graph: Graph, there: Sequence[Graph], nodes: tuple[Node, ...]
    ) -> _Choice | None:
        """The height of strips that gains most; None where none divides all images."""
        chain = ImageChain(graph=graph, nodes=nodes)
        one = dataclasses.replace(chain, graph=single(graph, chain))
        known = [ImageChain(graph=each, nodes=nodes) for each in there]
        found = [
            _Choice(chain, rows, tuple(self._gain(at, rows) for at in known))
            for rows in ((self.rows,) if self.rows else HEIGHTS)
            if RowBlocks.of(one, rows) is not None
        ]
        return max(found, key=lambda choice: choice.total, default=None)

    def _gain(self, chain: ImageChain, rows: int) -> float:
        """Cycles that strips save at a size; no more than none where all results are small."""
        if self.rows:
            return 1.0
        images = chain.graph.types[chain.output].shape[0]
        one = dataclasses.replace(chain, graph=single(chain.graph, chain))
        gain = self.estimate.gain(one, _strips(chain.height, rows), images)
        large = OUTGROWN * self.estimate.cache_bytes
        return gain if max(chain.intermediates()) > large else min(gain, 0.0)


def _strips(height: int, rows: int) -> dict[Rows, int]:
    """Strips of so many rows, and how many there are like each."""
    count = height // rows - 2
    found = {(0, rows): 1, ((count + 1) * rows, height): 1}
    return found | ({(rows, 2 * rows): count} if count else {})


def _splits(choice: _Choice, every: Sequence[_Choice]) -> bool:
    """Whether chains that are parts of this one gain more together."""
    total, inside = 0.0, set[str]()
    for other in sorted(every, key=lambda c: -c.total):
        if other.outputs < choice.outputs and not inside & other.outputs:
            total += other.total
            inside |= other.outputs
    return total > choice.total


def _worthy(sums: Sequence[Sequence[float]]) -> list[int]:
    """Numbers of chains that are worth a graph, 0 first. `sums`: by the number of chains, what
    they gain at each of the sizes."""
    counts, best = [0], list(sums[0])
    while len(counts) <= MOST_GRAPHS:
        totals = [math.fsum(map(max, best, each)) for each in sums]
        count = max(range(len(sums)), key=totals.__getitem__)
        if totals[count] <= math.fsum(best) * (1 + LEAST_GAIN):
            break
        counts.append(count)
        best = list(map(max, best, sums[count]))
    return counts


def _positive(gains: Sequence[float]) -> float:
    return math.fsum(max(0.0, gain) for gain in gains)


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
            choice = ends[node.output]
            new.replace(node.output, emit_images(choice.chain, new, choice.emit))
        elif node.output not in inside:
            new.keep(node)
    return new.finish()
