"""Row strips: image layers whose results outgrow the cache run a few rows at a time, all of them.

In: a graph after the other passes. Out: the same results; a chain of layers is repeated per strip
of rows over slices of its input, and its results are joined again. Slices and the join are mere
placements, so what is gained is that a strip's intermediate results never leave the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.graph.ir import Graph
from autotune.graph.rewriter import Rewriter
from autotune.graph.strips.image_chain import ImageChain, Rows, image_chains
from autotune.machine.cpu import strip_cycles, strip_start_cycles, strip_stream_cycles
from autotune.machine.speeds import CpuSpeeds, shipped_speeds

_SURE = 0.05
"""Share of a chain's work that must be gained: the estimate is a coarse one (chosen)."""
_CAUTION = 2
"""Times that the cost of strips counts, for the same reason."""
OUTGROWN = 4
"""Sizes of a core's own cache from which on results are worth strips."""
_WAYS = 2
"""Times that a result goes by: it is written, and read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStrips:
    """pool(conv(x)) -> concat(pool(conv(upper rows of x)), pool(conv(lower rows of x))), where the
    result of conv is much larger than `cache_bytes`, a core's own cache.

    Rows where windows of neighbouring strips overlap are computed twice. The number of strips, at
    most `most`, is what should gain most; a chain that should gain little stays as it is."""

    cache_bytes: int = 1 << 20
    most: int = 16
    strips: int = 0
    """So many strips of every chain, whatever that gains; 0: as many as should gain most."""
    outgrown: float = OUTGROWN
    """Sizes of that cache from which on what a strip's layers read and write gains nothing; where
    it is one size, all is gained, and between them the gain falls evenly."""
    speeds: CpuSpeeds = field(default_factory=lambda: shipped_speeds()[0])

    def run(self, graph: Graph) -> Graph:
        chains = {
            c.output: (c, self._strips(c))
            for c in image_chains(graph, OUTGROWN * self.cache_bytes)
        }
        chains = {end: (chain, count) for end, (chain, count) in chains.items() if count > 1}
        inside = {node.output for chain, _ in chains.values() for node in chain.nodes}
        new = Rewriter(graph)
        for node in graph.nodes:
            if node.output in chains:
                chain, count = chains[node.output]
                parts = [chain.emit(new, rows) for rows in chain.split(count)]
                new.replace(node.output, new.emit("concat", parts, node, axis=1))
            elif node.output not in inside:
                new.keep(node)
        return new.finish()

    def _strips(self, chain: ImageChain) -> int:
        """How many strips should gain most, of equal ones if there are any that gain; 1 where none
        should gain enough to be sure."""
        if self.strips:
            return min(self.strips, chain.height)
        strips = {count: chain.split(count) for count in range(2, self.most + 1)}
        gains = {
            n: self.gain(chain, dict.fromkeys(each, 1))
            for n, each in strips.items()
            if len(each) == n
        }
        gains = {count: gain for count, gain in gains.items() if gain > 0}
        equal = {count: gain for count, gain in gains.items() if chain.height % count == 0}
        candidates = equal or gains
        return max(candidates, key=lambda count: candidates[count], default=1)

    def gain(self, chain: ImageChain, strips: Mapping[Rows, int], images: int = 1) -> float:
        """Cycles that strips should save, less what is needed to be sure. `strips`: how many there
        are like each of these; `images`: how often the chain runs, one after the other, for all
        that the layers hand on otherwise."""
        count = images * sum(strips.values())
        if not chain.whole_tiles(list(strips)):
            return 0.0
        needed = {rows: chain.needed(rows) for rows in strips}
        held = max(map(chain.held_bytes, needed.values()))
        outgrown = (self.outgrown - held / self.cache_bytes) / (self.outgrown - 1)
        fit = min(1.0, max(0.0, outgrown))
        moved = (
            strip_stream_cycles(self.speeds, images * nbytes, self.cache_bytes)
            for nbytes in chain.intermediates()
        )
        whole = chain.flops(chain.needed((0, chain.height)))
        again = sum(n * chain.flops(needed[rows]) for rows, n in strips.items()) - whole
        once = strip_cycles(self.speeds, images * whole)
        each = strip_start_cycles(self.speeds, len(chain.windowed), chain.weight_bytes())
        cost = _CAUTION * (strip_cycles(self.speeds, images * again) + (count - 1) * each)
        return fit * _WAYS * sum(moved) - cost - _SURE * once
