"""What the compiler takes where sizes of inputs are open. Out: a graph for each set of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.graph.ir import Graph
from autotune.size_ranges import SizedType


class OpenModel(Protocol):
    """A model, of any format, some sizes of whose inputs are symbols."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Mapping[str, SizedType]: ...

    @property
    def outputs(self) -> Mapping[str, SizedType]: ...

    @property
    def symbols(self) -> tuple[str, ...]: ...

    @property
    def weight_bytes(self) -> int: ...

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """The model where its symbols have these sizes. Raises what importing does."""
        ...
