"""A model whose inputs have open sizes, for the compiler. Out: a graph for each set of sizes, and
one for all."""

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

    def open_graph(self, sizes: Mapping[str, int]) -> Graph:
        """The model with sizes of `autotune.sizes` for its symbols. Raises what importing does,
        and whatever an importer does that must know a size."""
        ...

    def limits(self) -> Mapping[str, tuple[int, int]]:
        """Least and most of symbols, as the model itself says; those that it says nothing of are
        left out."""
        ...
