"""A function of tensors, recorded as core ATen, imported, and run by numpy: what importers say is
compared with PyTorch without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from autotune.frontend.torch.decompositions import decompositions
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.torch.open_piece import OpenPiece
from autotune.torch.pieces import GraphPlan, PieceRunner, plan
from autotune.types import Array


class ByNumpy:
    """Stands for a compiled model."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        types = self._graph.types
        double = any(kind.dtype == "float64" for kind in types.values())
        made = run_graph(self._graph, feeds, "float64" if double else "float32")
        kinds = {name: types[value].dtype for name, value in self._graph.outputs}
        return {name: np.array(a, kinds[name], order="C") for name, a in made.items()}


def model_by_numpy(graph: Graph | OpenPiece) -> ByNumpy:
    """A graph of known sizes, as a model."""
    assert isinstance(graph, Graph)
    return ByNumpy(graph)


def recorded(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> tuple[fx.GraphModule, GraphPlan]:
    """The function's graph, with a list of results, and how it would be run."""

    def flat(*tensors: torch.Tensor) -> list[Any]:
        return list(pytree.tree_leaves(function(*tensors)))

    table = decompositions()
    with torch.no_grad():
        apart = make_fx(flat, decomposition_table=table, tracing_mode="fake")(*inputs)
        # What PyTorch takes operators apart into may write to what it has made itself.
        pure = functionalize(apart, remove="mutations_and_views")
        module = make_fx(pure, decomposition_table=table, tracing_mode="fake")(*inputs)
    values = {node: node.meta.get("val") for node in module.graph.nodes}
    constants = (n for n in module.graph.nodes if n.op == "get_attr")
    values |= {node: getattr(module, node.target) for node in constants}
    return module, plan(module, values, {})


def by_numpy(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> tuple[list[Any], GraphPlan]:
    """(what the function gives, how it was run)."""
    module, found = recorded(function, inputs)
    return list(PieceRunner(module, found, model_by_numpy)(list(inputs))), found
