"""`torch.compile(model, backend="autotune")`. In: a graph of PyTorch's compiler with examples of
its inputs. Out: a function that computes the same.

Dynamo records the model's Python code, AOTAutograd makes functional core ATen of it (mutations and
aliases of inputs and outputs are its business), and what remains is compiled here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import TorchDynamoException
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from autotune.defects import NO_DEFECT, raised
from autotune.frontend.torch.decompositions import decompositions
from autotune.torch.forms import without_data
from autotune.torch.gradients import Differentiable, differentiates, with_gradients
from autotune.torch.graph import CompiledGraph
from autotune.torch.indices import listed_indices
from autotune.torch.model_parts import parts_of
from autotune.torch.options import CompileOptions
from autotune.torch.pieces import CompileGraph
from autotune.torch.versions import held_weights, is_weight, saves_functions

_LOGGER = logging.getLogger("autotune.torch")
Compiled = Callable[..., Sequence[Any]]
Weights = Mapping[int, torch.Tensor]
"""Parameters and buffers among a graph's inputs, by number."""
CompileTraced = Callable[[fx.GraphModule, Sequence[Any], Weights], Compiled]


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,  # noqa: ARG001 (torch passes it on)
) -> Compiled:
    """The backend of `torch.compile` named `autotune`. Raises InputError for wrong options."""
    wanted = CompileOptions.of(options)
    if saves_functions():
        from autotune.torch.saved import SavedGraph

        return SavedGraph(module, options)
    weights = _weights_among(inputs)
    if without_data(weights):
        return module.forward
    try:
        parts = parts_of(weights, wanted.compile)
        compile_ = functools.partial(wanted.compiled, parts=parts)
        return compiled_by(compile_, module, inputs, wanted.min_gain)
    except (*NO_DEFECT, TorchDynamoException):
        raise  # by some of PyTorch's own it begins anew
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        _LOGGER.warning("a graph runs in PyTorch: %s gives sizes that a run decides", error.func)
        return module.forward
    except Exception as error:  # neither we nor AOTAutograd end a program: PyTorch has the graph
        raised("a graph", error, "PyTorch runs it")
        return module.forward


def compiled_by(
    compile_: CompileGraph, module: fx.GraphModule, inputs: Sequence[Any], min_gain: float = 0.0
) -> Compiled:
    """The module as a function; `compile_` makes what runs the graphs of its pieces, those that
    `min_gain` leaves."""
    elsewhere = {str(t.device) for t in inputs if isinstance(t, torch.Tensor)} - {"cpu"}
    if elsewhere:
        _LOGGER.warning("a graph runs in PyTorch: it has tensors on %s", ", ".join(elsewhere))
        return module
    recording = torch.is_grad_enabled() and any(
        isinstance(t, torch.Tensor) and t.requires_grad for t in inputs
    )
    inner = torch.is_grad_enabled() and differentiates(module)
    if recording and inner:
        _LOGGER.warning("a graph runs in PyTorch: it records gradients of gradients")
        return module
    with torch.no_grad():
        whole = with_gradients(module) if inner else module
        compiled, impure = compiled_graph(whole, inputs, compile_, min_gain)
    if compiled is None:
        # As PyTorch recorded it, with nothing around it, which small graphs would take longer for.
        return module.forward
    if not recording:
        return compiled
    if impure:
        _LOGGER.warning("a graph runs in PyTorch: it records gradients and %s", impure)
        return module
    return Differentiable(compiled, module)


def compiled_graph(
    module: fx.GraphModule, inputs: Sequence[Any], compile_: CompileGraph, min_gain: float
) -> tuple[Compiled | None, str]:
    """(the module as a function, None where PyTorch is to run all of it; why a second run of it
    would not give the same, empty where it would)."""
    from torch._guards import TracingContext

    runs: list[CompiledGraph] = []

    def compile_traced(graph: fx.GraphModule, _: Sequence[Any], weights: Weights) -> Compiled:
        run = CompiledGraph(graph, weights, compile_, min_gain)
        runs.append(run)

        def boxed(args: list[Any]) -> Sequence[Any]:
            made = run(args)
            args.clear()
            return made

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    compiled = traced(module, inputs, compile_traced)
    if runs and not any(run.ours for run in runs):
        return None, ""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    pure = _is_pure(facts)
    impure = "draws random numbers" if any(run.random for run in runs) else ""
    if any(run.aliased for run in runs):
        impure = "gives views of its results"
    if pure and len(runs) == 1 and _is_plain(facts, inputs):
        # What AOTAutograd wraps around it would do nothing, for some microseconds a call.
        (direct,) = runs
        return direct.call, impure
    if not pure:
        impure = "writes to its inputs or gives views of them"
    return compiled, impure


def traced(module: fx.GraphModule, inputs: Sequence[Any], compile_: CompileTraced) -> Compiled:
    """The module as AOTAutograd makes a function of it, whose graph `compile_` compiles.

    Its inputs are the module's own weights, where it holds some, and then the module's inputs.
    Where they are others (some are one tensor, or parts of a subclass), weights are inputs as
    others are."""
    from torch._dynamo.backends.common import aot_autograd

    def compile_graph(graph: fx.GraphModule, given: Sequence[Any]) -> Compiled:
        held = held_weights()
        every = [*held, *inputs]
        weights = {
            i: t
            for i, t in enumerate(every)
            if isinstance(t, torch.Tensor) and (i < len(held) or is_weight(t))
        }
        return compile_(graph, given, weights if len(given) == len(every) else {})

    make = aot_autograd(fw_compiler=compile_graph, decompositions=decompositions())
    return make(listed_indices(module), inputs)


def _weights_among(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """A graph's weights, those that its module holds and those that it is given, which have memory
    of their own."""
    given = [t for t in inputs if isinstance(t, torch.Tensor) and is_weight(t)]
    every = [t for t in (*held_weights(), *given) if isinstance(t, torch.Tensor)]
    return [t for t in every if t.device.type == "cpu" and not is_traceable_wrapper_subclass(t)]


def _is_pure(facts: Any) -> bool:
    """By what AOTAutograd found about a graph."""
    if facts is None:
        return False
    written = any(i.mutates_data or i.mutates_metadata for i in facts.input_info)
    plain = all(o.output_type.name == "non_alias" for o in facts.output_info)
    return plain and not written


def _is_plain(facts: Any, inputs: Sequence[Any]) -> bool:
    """Whether a pure graph takes the module's inputs as they are, and gives its results so."""
    return (
        len(facts.input_info) == len(inputs)
        and facts.num_intermediate_bases == 0
        and not facts.tokens
        and not facts.is_rng_op_functionalized
        and not torch.is_autocast_enabled("cpu")
        and not any(is_traceable_wrapper_subclass(i) for i in inputs)
    )
