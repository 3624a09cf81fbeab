"""A functional ATen graph as a function. In: the graph as AOTAutograd makes it, and its weights.
Out: a callable that compiles for the sizes that it meets, and again where weights change."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
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
from autotune.torch.admission import SizeAdmission
from autotune.torch.aliases import result_views
from autotune.torch.forms import without_data
from autotune.torch.native import QuickCall
from autotune.torch.pieces import CompileGraph, GraphPlan, PieceRunner, plan
from autotune.torch.split import draws
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
        self._by_size = False
        """Whether each set of sizes has a program of its own."""
        self._programs: OrderedDict[Any, PieceRunner | None] = OrderedDict()
        self._admission = SizeAdmission(KEPT_SIZES)
        self._numbers = tuple(weights)
        self._settled = True
        self._quick: QuickCall = _by_the_long_way
        """Looks at the weights and runs the program, where that is one piece on its inputs'
        memory: all that calls of small graphs need, which take longer than their work."""
        self._take(weights)
        with _disable_current_modes():  # weights are tensors with data
            decided = decided_by_a_run(self._values)
            self._opened = None if decided else self._symbols()
            self._by_size = is_open(self._values) and self._opened is None and not decided
            if decided:
                _LOGGER.warning("a graph runs in PyTorch: %s is known to a run only", decided)
                self._programs[None] = None
            elif not self._by_size:
                self._programs[None] = self._compiled()
                self._take_quick()

    @property
    def ours(self) -> bool:
        """Whether some of it is or may become a piece of ours."""
        return self._by_size or self._programs[None] is not None

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
        made = self._quick(inputs)
        return self._called(inputs) if made is None else made

    def _called(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The long way: weights may have changed, there may be no program yet."""
        if self._watch.changed(inputs):
            self._programs.clear()
            self._quick = _by_the_long_way
            self._take({i: inputs[i] for i in self._numbers})
            self._settled = False  # who changes weights may go on doing so
            return self._eager(inputs)
        key = call_sizes(inputs) if self._by_size else None
        if key not in self._programs:
            if not self._settled:
                self._settled = True
                return self._eager(inputs)
            if not self._admission.admits(key, len(self._programs)):
                return self._eager(inputs)
            self._programs[key] = self._compiled(inputs)
            self._take_quick()
            if len(self._programs) > KEPT_SIZES:
                self._programs.popitem(last=False)
        elif self._by_size:
            self._programs.move_to_end(key)
        program = self._programs[key]
        return self._eager(inputs) if program is None else self._ran(program, key, inputs)

    def _ran(self, program: PieceRunner, key: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """What the program gives; where it raises, PyTorch runs the graph, which writes to none of
        its inputs, and raises itself where the inputs are wrong."""
        try:
            return program(inputs)
        except MemoryError:
            raise
        except Exception as error:  # a defect ends no program: PyTorch has the graph
            made = self._eager(inputs)
            if not without_data(inputs):
                raised("a graph", error, "PyTorch runs it")
                self._programs[key] = None
            return made

    def _take_quick(self) -> None:
        program = self._programs.get(None)
        if program is not None and program.direct is not None:
            self._quick = program.direct.watching(self._watch)

    def _take(self, weights: Mapping[int, torch.Tensor]) -> None:
        self._weights = dict(weights)
        self._watch = WeightWatch(weights)

    def _eager(self, inputs: Sequence[Any]) -> Sequence[Any]:
        made: Sequence[Any] = self._module(*inputs)
        return made

    def _symbols(self) -> OpenGraphSizes | None:
        """The graph's symbols, where one program serves all of their sizes; None where sizes are
        known, or some operator must know one."""
        if not is_open(self._values):
            return None
        held = known_weights(self._module, self._weights)
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

    def _compiled(self, inputs: Sequence[Any] = ()) -> PieceRunner | None:
        """A runner of the graph, of these inputs' sizes where each set of them has a program;
        None where PyTorch runs everything."""
        held = known_weights(self._module, self._weights)
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


def _by_the_long_way(_: Sequence[Any]) -> None:
    """Where there is no quick way."""


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
