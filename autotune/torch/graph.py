"""A functional ATen graph as a function. In: the graph as AOTAutograd makes it, and its weights.
Out: a callable that compiles for the sizes that it meets, and again where weights change."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from autotune.defects import described, raised
from autotune.errors import InputError
from autotune.frontend.torch.sizes import (
    OpenGraphSizes,
    call_sizes,
    decided_by_a_run,
    is_open,
    sized_values,
)
from autotune.torch.aliases import result_views
from autotune.torch.forms import without_data
from autotune.torch.pieces import CompileGraph, GraphPlan, PieceRunner, plan
from autotune.torch.split import draws
from autotune.torch.weight_set import KEPT_SIZES, WeightSet, WeightSets

_LOGGER = logging.getLogger("autotune.torch")


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
        self._by_size = False
        """Whether each set of sizes has a program of its own."""
        with _disable_current_modes():  # weights are tensors with data
            self._sets = WeightSets(weights)
            first = self._sets.find(weights)
            assert first is not None
            decided = decided_by_a_run(self._values)
            self._opened = None if decided else self._symbols(first)
            self._by_size = is_open(self._values) and self._opened is None and not decided
            if decided:
                _LOGGER.warning("a graph runs in PyTorch: %s is known to a run only", decided)
                first.programs[None] = None
            elif not self._by_size:
                first.programs[None] = self._compiled(first)
                first.take_quick()
        self.ours = self._by_size or first.programs[None] is not None
        """Whether some of it is or may become a piece of ours."""

    @property
    def random(self) -> bool:
        """Whether it draws random numbers, other ones in every run."""
        return any(map(draws, self._module.graph.nodes))

    @property
    def aliased(self) -> bool:
        """Whether some of its results lie in the same memory."""
        (results,) = self._module.graph.output_node().args
        views = result_views(results) if isinstance(results, tuple | list) else None
        return views is not None and views.several

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return self.call(*inputs)

    def call(self, *inputs: Any) -> Sequence[Any]:
        """The same, with every input as an argument."""
        try:
            made = self._sets.quick(inputs)
        except MemoryError:
            raise
        except Exception:  # the long way raises it too, and tells
            made = None
        return self._called(inputs) if made is None else made

    def _called(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The long way: weights may have changed, there may be no program yet."""
        held = self._sets.find(inputs)
        if held is None:
            self._sets.meet(inputs)
            return self._eager(inputs)
        if held.watch.changed(inputs):
            held.take(self._sets.among(inputs))
            held.settled = False  # who changes weights may go on doing so
            return self._eager(inputs)
        key = call_sizes(inputs) if self._by_size else None
        if key not in held.programs:
            if not held.settled:
                held.settled = True
                return self._eager(inputs)
            if not held.admission.admits(key, len(held.programs)):
                return self._eager(inputs)
            held.programs[key] = self._compiled(held, inputs)
            held.take_quick()
            if len(held.programs) > KEPT_SIZES:
                held.programs.popitem(last=False)
        elif self._by_size:
            held.programs.move_to_end(key)
        program = held.programs[key]
        if program is None:
            return self._eager(inputs)
        try:
            return program(inputs)
        except MemoryError:
            raise
        except Exception as error:  # a defect ends no program: PyTorch has the graph
            # It writes to none of its inputs, and raises itself where they are wrong.
            made = self._eager(inputs)
            if not without_data(inputs):
                raised("a graph", error, "PyTorch runs it")
                held.programs[key] = None
                held.take_quick()
            return made

    def _eager(self, inputs: Sequence[Any]) -> Sequence[Any]:
        made: Sequence[Any] = self._module(*inputs)
        return made

    def _symbols(self, first: WeightSet) -> OpenGraphSizes | None:
        """The graph's symbols, where one program serves all of their sizes; None where sizes are
        known, or some operator must know one."""
        if not is_open(self._values):
            return None
        held = known_weights(self._module, first.weights)
        try:
            opened = OpenGraphSizes(self._module, self._values)
            with opened.undecided():
                found = plan(self._module, self._values, held, 0.0, opened)
            usual = plan(self._module, opened.examples, held) if found.refused else found
            extra = [why for node, why in found.refused.items() if node not in usual.refused]
            if not extra:
                return opened
            why = extra[0]
        except MemoryError:
            raise
        except Exception as error:  # each set of sizes can be compiled for itself
            why = described(error)
        _LOGGER.info("each set of sizes is compiled when it is first met: %s", why)
        return None

    def _compiled(self, of: WeightSet, inputs: Sequence[Any] = ()) -> PieceRunner | None:
        """A runner of the graph with weights, of these inputs' sizes where each set of them has a
        program; None where PyTorch runs everything."""
        held = known_weights(self._module, of.weights)
        opened = None if self._by_size else self._opened
        try:
            values = sized_values(self._module, inputs) if self._by_size else self._values
            with opened.undecided() if opened else contextlib.nullcontext():
                found = plan(self._module, values, held, self._min_gain, opened)
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
