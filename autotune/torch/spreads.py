"""Results between whose elements lie others, where sizes are open. In: a graph's results, and its
symbols. Out: at a call, the results with the strides that eager's have.

A row of a larger tensor is computed alone, and lies in memory as if its neighbours were there:
who looks at strides, or asks for a view, gets what eager gives. Where sizes are known, a piece's
ports say so themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx

from autotune.frontend.torch.order import strides_with_gaps
from autotune.frontend.torch.sizes import OpenGraphSizes

OpenStrides = Callable[[Mapping[str, int]], tuple[int, ...]]
"""Strides at the sizes of a graph's symbols."""
_FUNCTIONS: dict[str, Any] = {
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod, "Max": max,
    "Min": min,
}  # fmt: skip
"""PyTorch's functions of sizes, and sympy's, by their names there."""


def open_spreads(
    results: Collection[fx.Node], opened: OpenGraphSizes
) -> Mapping[fx.Node, OpenStrides]:
    """Strides of the results that have gaps at the usual sizes."""
    return {
        node: _strides(opened.values[node])
        for node in results
        if isinstance(opened.examples[node], torch.Tensor)
        and strides_with_gaps(opened.examples[node]) is not None
    }


def _strides(value: torch.Tensor) -> OpenStrides:
    steps = [
        s.node.expr if isinstance(s, torch.SymInt) else sympy.Integer(s) for s in value.stride()
    ]
    symbols = sorted(set().union(*(s.free_symbols for s in steps)), key=str)
    names, compute = [*map(str, symbols)], sympy.lambdify(symbols, steps, [_FUNCTIONS])
    return lambda sizes: tuple(compute(*[sizes[name] for name in names]))


def spread(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same elements in memory of their own, with these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
