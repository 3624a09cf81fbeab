"""Drop nodes and constants that no output needs."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph
from autotune.graph.rewriter import Rewriter


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDeadNodes:
    """relu(x) that nothing reads -> nothing."""

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        for node in graph.nodes:
            new.keep(node)
        return new.finish()
