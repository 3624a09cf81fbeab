"""A piece of a graph whose sizes are open, as the compiler takes models of open sizes. In: the
nodes, and the graph's symbols. Out: a graph for each set of sizes, and one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.dtypes import graph_dtype
from autotune.frontend.torch.importer import (
    ImportedPiece,
    TensorPort,
    Values,
    import_nodes,
)
from autotune.frontend.torch.order import memory_order
from autotune.frontend.torch.sizes import KNOWN, OpenGraphSizes, OpenSizes
from autotune.graph.ir import Graph
from autotune.size_ranges import SizedType, symbols_of
from autotune.torch.split import GraphPiece


class OpenPiece:
    """An `OpenModel`."""

    def __init__(
        self, piece: GraphPiece, opened: OpenGraphSizes, weights: Mapping[fx.Node, torch.Tensor]
    ) -> None:
        """Raises UnsupportedOpError where sizes do not follow from the inputs'."""
        self.name = "piece"
        self._piece, self._opened, self._weights = piece, opened, weights
        self.ports: tuple[Sequence[TensorPort], Sequence[TensorPort]] = (
            [self._port(n, f"x{i}") for i, n in enumerate(piece.inputs)],
            [self._port(n, f"y{i}") for i, n in enumerate(piece.outputs)],
        )
        takes, gives = self.ports
        self.inputs = {p.name: self._sized(n, p) for n, p in zip(piece.inputs, takes, strict=True)}
        self.outputs = {
            p.name: self._sized(n, p) for n, p in zip(piece.outputs, gives, strict=True)
        }
        self.symbols = symbols_of(self.inputs.values())
        for name, kind in self.inputs.items():
            for extent in kind.shape:
                if isinstance(extent, str) and not extent.isidentifier():
                    raise UnsupportedOpError(f"input {name} has a size {extent}")
        read = {n for node in piece.nodes for n in node.all_input_nodes}
        self.weight_bytes = sum(t.nbytes for n, t in weights.items() if n in read)

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """The piece where its symbols have these sizes."""
        values = self._opened.at({**self._opened.usual, **sizes})
        return self._imported(values, KNOWN, values).graph

    def open_graph(self, sizes: Mapping[str, int]) -> Graph:
        """The piece with sizes of `autotune.sizes` for its symbols. Raises what importing does."""
        opened = self._opened
        with opened.undecided():
            return self._imported(opened.values, OpenSizes(sizes), opened.examples).graph

    def usual(self) -> Graph:
        """The piece at the sizes that it was recorded with."""
        return self.graph({})

    def limits(self) -> Mapping[str, tuple[int, int]]:
        """Least and most of symbols, as PyTorch's conditions have them."""
        return {name: self._opened.ranges[name] for name in self.symbols}

    def _imported(self, values: Values, sizes: OpenSizes, examples: Values) -> ImportedPiece:
        piece = self._piece
        return import_nodes(
            piece.nodes, values, piece.inputs, piece.outputs,
            weights=self._weights, sizes=sizes, examples=examples,
        )  # fmt: skip

    def _port(self, node: fx.Node, name: str) -> TensorPort:
        example = self._opened.examples[node]
        return TensorPort(name=name, dtype=example.dtype, order=memory_order(example))

    def _sized(self, node: fx.Node, port: TensorPort) -> SizedType:
        value = self._opened.values[node]
        shape = [e if isinstance(e, int) else str(e) for e in value.shape]
        return SizedType(dtype=graph_dtype(value.dtype), shape=tuple(shape[d] for d in port.order))
