"""Gradients of a compiled graph. In: the graph, compiled, and as PyTorch has it. Out: a function
whose results have gradients.

The forward pass is ours. Who asks for gradients pays for a second one: PyTorch runs the graph
again and goes backward through it, in the same precision. A graph that was gone backward through
once is PyTorch's from then on: gradients of its next pass will be wanted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


class Differentiable:
    """`compiled` and `original` compute the same; neither writes to its inputs."""

    def __init__(self, compiled: Callable[..., Sequence[Any]], original: fx.GraphModule) -> None:
        self.compiled, self.original = compiled, original
        self._apart = apart_results(original)
        self.trained = False
        """Whether gradients were asked for."""

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if not torch.is_grad_enabled() or not any(map(_wants_gradient, inputs)):
            return self.compiled(*inputs)
        made: Sequence[Any] = (
            self.original(*inputs) if self.trained else _Forward.apply(self, *inputs)  # type: ignore[no-untyped-call]
        )
        return made

    def constant(self, made: Sequence[Any]) -> list[torch.Tensor]:
        """The results that have no gradient."""
        pairs = [(i, m) for i, m in enumerate(made) if isinstance(m, torch.Tensor)]
        return [m for i, m in pairs if i in self._apart or not _takes_gradient(m)]


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    ctx.owner.trained = True
    saved = iter(ctx.saved_tensors)
    inputs = [next(saved) if number is None else number for number in ctx.numbers]
    wanted = ctx.needs_input_grad[1:]
    # Gradients of these gradients follow from the inputs' own (`create_graph=True`).
    further = torch.is_grad_enabled()
    enabled, precision = ctx.autocast
    with torch.enable_grad(), torch.autocast("cpu", precision, enabled=enabled):
        again = [
            _apart(i, need, further) if isinstance(i, torch.Tensor) else i
            for i, need in zip(inputs, wanted, strict=True)
        ]
        made = ctx.owner.original(*again)
    pairs = [
        (m, g)
        for m, g in zip(made, gradients, strict=True)
        if isinstance(m, torch.Tensor) and m.requires_grad and g is not None
    ]
    sources = [a for a, need in zip(again, wanted, strict=True) if need]
    ends, given = [m for m, _ in pairs], [g for _, g in pairs]
    found = iter(
        torch.autograd.grad(ends, sources, given, allow_unused=True, create_graph=further)
    )
    return None, *(next(found) if need else None for need in wanted)


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, owner: Differentiable, *inputs: Any) -> tuple[Any, ...]:
        ctx.owner = owner
        ctx.numbers = [None if isinstance(i, torch.Tensor) else i for i in inputs]
        ctx.autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        ctx.save_for_backward(*(i for i in inputs if isinstance(i, torch.Tensor)))
        with torch.no_grad():
            made = tuple(owner.compiled(*inputs))
        ctx.mark_non_differentiable(*owner.constant(made))
        return made

    # Where what is compiled goes backward itself, PyTorch would record it for every graph.
    backward = staticmethod(torch.compiler.disable(_backward))  # type: ignore[no-untyped-call]


def _apart(given: torch.Tensor, need: bool, further: bool) -> torch.Tensor:
    """An input whose gradient is its own, where the same tensor is given twice, too; `need`:
    whether one is wanted, `further`: whether it is part of what its source's is made of."""
    if further and need:
        return given.view_as(given)
    return given.detach().requires_grad_(need)


def apart_results(module: fx.GraphModule) -> set[int]:
    """The numbers of a graph's results that no gradient reaches, as Dynamo recorded them: they
    were made where none are recorded, detached, or follow from nothing that has one."""
    (results,) = module.graph.output_node().args
    nodes = results if isinstance(results, list | tuple) else [results]
    examples = [n.meta.get("example_value") if isinstance(n, fx.Node) else None for n in nodes]
    return {
        i
        for i, example in enumerate(examples)
        if isinstance(example, torch.Tensor) and not example.requires_grad
    }


def _takes_gradient(made: torch.Tensor) -> bool:
    return made.is_floating_point() or made.is_complex()


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def differentiates(module: fx.GraphModule) -> bool:
    """Whether a graph takes gradients itself, as `torch.func.grad` does."""
    parts = [m for m in module.modules() if isinstance(m, fx.GraphModule)]
    targets = {n.target for part in parts for n in part.graph.nodes if n.op == "call_function"}
    names = {getattr(target, "__name__", "") for target in targets}
    return torch.autograd.grad in targets or "_grad_increment_nesting" in names


def with_gradients(module: fx.GraphModule) -> fx.GraphModule:
    """The graph where gradients are recorded, whoever calls it: Dynamo leaves out what was so
    when it recorded the graph."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    begun = False
    for node in module.graph.nodes:
        if not begun and node.op != "placeholder":
            graph.call_function(torch._C._set_grad_enabled, (True,))
            begun = True
        if node.op == "output":
            graph.call_function(torch._C._set_grad_enabled, (False,))
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(module, graph)
