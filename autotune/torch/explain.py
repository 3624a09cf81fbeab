"""Shares of a model that are ours and PyTorch's. In: a model and example inputs. Out: its graphs,
and for each how many operators run as kernels of ours, and which ones PyTorch runs and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.sizes import OpenGraphSizes, is_open
from autotune.torch.backend import Weights, traced
from autotune.torch.graph import known_weights
from autotune.torch.options import MIN_GAIN
from autotune.torch.pieces import GraphPlan, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphExplanation:
    """One graph of a model, of those that PyTorch's recorder cuts it into."""

    ours: int
    """Operators in pieces of ours."""
    others: int
    """Operators that there is none for here, which PyTorch runs."""
    quicker: int
    """Operators that PyTorch runs since it is predicted to be quicker."""
    pieces: int
    """Pieces that are run one after the other, ours and PyTorch's."""
    reasons: tuple[tuple[str, int], ...]
    """Why PyTorch runs operators, and how many; the most frequent reason first."""

    def __str__(self) -> str:
        total = self.ours + self.others + self.quicker
        whole = f"{self.ours} of {total} operators are ours"
        whole += f", {self.quicker} are quicker in PyTorch" if self.quicker else ""
        lines = [f"{whole}, in {self.pieces} piece{'s' * (self.pieces != 1)}"]
        return "\n".join([*lines, *(f"    {count} x {why}" for why, count in self.reasons)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A model's graphs in the order in which they were met; printed as text."""

    graphs: tuple[GraphExplanation, ...]

    @property
    def whole(self) -> bool:
        """Whether there is nothing that only PyTorch can run."""
        return not any(graph.others for graph in self.graphs)

    def __str__(self) -> str:
        return "\n".join(f"graph {i}: {graph}" for i, graph in enumerate(self.graphs))


def explain(model: Callable[..., Any], *inputs: Any, **named: Any) -> Explanation:
    """Explanation of what would be ours, for these inputs. Nothing is compiled: PyTorch runs the
    model once, without gradients."""
    found: list[GraphExplanation] = []

    def watching(module: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        def look(graph: fx.GraphModule, _: Sequence[Any], weights: Weights) -> Any:
            with _disable_current_modes():
                held = known_weights(graph, weights)
                found.append(_explained(plan(graph, _given_values(graph), held, MIN_GAIN)))
            return graph.forward

        traced(module, given, look)
        return module

    with torch.no_grad():
        torch.compile(model, backend=watching)(*inputs, **named)
    return Explanation(graphs=tuple(found))


def _given_values(graph: fx.GraphModule) -> Mapping[fx.Node, Any]:
    """What every node gives for the inputs at hand, also where PyTorch recorded sizes as symbols:
    for a tensor that is marked dynamic, or at the second size that it sees."""
    values = {n: n.meta.get("val") for n in graph.graph.nodes}
    if not is_open(values):
        return values
    try:
        return OpenGraphSizes(graph, values).examples
    except UnsupportedOpError:
        return values


def _explained(found: GraphPlan) -> GraphExplanation:
    reasons = Counter(found.refused.values())
    return GraphExplanation(
        ours=found.native_nodes,
        others=len(found.refused),
        quicker=found.quicker,
        pieces=len(found.pieces),
        reasons=tuple(reasons.most_common()),
    )
