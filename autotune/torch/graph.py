"""A functional ATen graph as a function. In: the graph as AOTAutograd makes it, and its weights.
Out: a callable that compiles for the sizes that it meets, and again where weights change."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from autotune.defects import raised
from autotune.errors import InputError
from autotune.frontend.torch.sizes import call_sizes, is_open, sized_values
from autotune.torch.pieces import CompileGraph, GraphPlan, PieceRunner, plan
from autotune.torch.watch import WeightWatch

_LOGGER = logging.getLogger("autotune.torch")
KEPT_SIZES = 16
"""Programs of one graph that are kept, those used last."""


class CompiledGraph:
    """Runs a graph. Where it cannot be compiled, PyTorch runs it."""

    def __init__(
        self,
        module: fx.GraphModule,
        weights: Mapping[int, torch.Tensor],
        compile_: CompileGraph,
        min_gain: float = 0.0,
    ) -> None:
        """`weights`: parameters and buffers among the graph's inputs, by number; `min_gain`: see
        `plan`."""
        self._module, self._compile, self._min_gain = module, compile_, min_gain
        self._values = {n: n.meta.get("val") for n in module.graph.nodes}
        self._open = is_open(self._values)
        self._programs: OrderedDict[Any, PieceRunner | None] = OrderedDict()
        self._numbers = tuple(weights)
        self._watch: WeightWatch | None = None
        self._settled = True
        self._take(weights)
        if not self._open:
            with _disable_current_modes():  # weights are tensors with data
                self._programs[None] = self._compiled(self._values)

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self._watch is not None and self._watch.changed(inputs):
            self._programs.clear()
            self._take({i: inputs[i] for i in self._numbers})
            self._settled = False  # who changes weights may go on doing so
            return self._eager(inputs)
        key = call_sizes(inputs) if self._open else None
        if key not in self._programs:
            if not self._settled:
                self._settled = True
                return self._eager(inputs)
            values = sized_values(self._module, inputs) if self._open else self._values
            self._programs[key] = self._compiled(values)
            if len(self._programs) > KEPT_SIZES:
                self._programs.popitem(last=False)
        elif self._open:
            self._programs.move_to_end(key)
        program = self._programs[key]
        return self._eager(inputs) if program is None else program(inputs)

    def _take(self, weights: Mapping[int, torch.Tensor]) -> None:
        self._weights = dict(weights)
        self._watch = WeightWatch(weights) if weights else None

    def _eager(self, inputs: Sequence[Any]) -> Sequence[Any]:
        made: Sequence[Any] = self._module(*inputs)
        return made

    def _compiled(self, values: Mapping[fx.Node, Any]) -> PieceRunner | None:
        """A runner of the graph for these shapes; None where PyTorch runs everything."""
        held = known_weights(self._module, self._weights)
        try:
            found = plan(self._module, values, held, self._min_gain)
            tell(found)
            if not found.native_nodes:
                return None
            return PieceRunner(self._module, found, self._compile)
        except InputError as error:
            _LOGGER.warning("a graph runs in PyTorch: %s", error)
        except MemoryError:
            raise
        except Exception as error:  # a defect ends no program: PyTorch has the graph
            raised("a graph", error, "PyTorch runs it")
        return None


def known_weights(
    module: fx.GraphModule, weights: Mapping[int, torch.Tensor]
) -> dict[fx.Node, torch.Tensor]:
    """Weights, given by the number of an input, by the node that stands for it."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    return {placeholders[i]: t for i, t in weights.items()}


def tell(found: GraphPlan) -> None:
    """One line where PyTorch runs something."""
    if found.refused:
        reasons = sorted(set(found.refused.values()))
        more = f"; {len(reasons) - 3} more" if len(reasons) > 3 else ""
        _LOGGER.warning(
            "%d of %d operators run in PyTorch: %s%s", len(found.refused),
            len(found.refused) + found.native_nodes, "; ".join(reasons[:3]), more,
        )  # fmt: skip
