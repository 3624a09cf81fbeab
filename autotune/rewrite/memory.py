"""Memory of a search: constants that were folded into others for graphs which may not be taken."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.graph.ir import Graph


class NewConstants:
    """Bytes of the constants that graphs hold beside those of the first one, each array once."""

    def __init__(self, first: Graph, held: Iterable[Graph]) -> None:
        self._known = {id(array) for array in first.constants.values()}
        self.nbytes = 0
        for graph in held:
            self.add(graph)

    def add(self, graph: Graph) -> None:
        """A graph that is kept from now on."""
        for array in graph.constants.values():
            if id(array) not in self._known:
                self._known.add(id(array))
                self.nbytes += array.nbytes
