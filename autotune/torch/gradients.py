"""Gradients of a compiled graph. In: the graph, compiled, and as PyTorch has it. Out: a function
whose results have gradients.

The forward pass is ours. Who asks for gradients pays for a second one: PyTorch runs the graph
again and goes backward through it. A graph that was gone backward through once is PyTorch's from
then on: gradients of its next pass will be wanted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class Differentiable:
    """`compiled` and `original` compute the same; neither writes to its inputs."""

    def __init__(
        self, compiled: Callable[..., Sequence[Any]], original: Callable[..., Sequence[Any]]
    ) -> None:
        self.compiled, self.original = compiled, original
        self.trained = False
        """Whether gradients were asked for."""

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if not torch.is_grad_enabled() or not any(map(_wants_gradient, inputs)):
            return self.compiled(*inputs)
        if self.trained:
            return self.original(*inputs)
        made: Sequence[Any] = _Forward.apply(self, *inputs)  # type: ignore[no-untyped-call]
        return made


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, owner: Differentiable, *inputs: Any) -> tuple[Any, ...]:
        ctx.owner = owner
        ctx.numbers = [None if isinstance(i, torch.Tensor) else i for i in inputs]
        ctx.save_for_backward(*(i for i in inputs if isinstance(i, torch.Tensor)))
        with torch.no_grad():
            made = tuple(owner.compiled(*inputs))
        ctx.mark_non_differentiable(
            *(m for m in made if isinstance(m, torch.Tensor) and not m.is_floating_point())
        )
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        ctx.owner.trained = True
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if number is None else number for number in ctx.numbers]
        wanted = ctx.needs_input_grad[1:]
        again = [
            i.detach().requires_grad_(need) if isinstance(i, torch.Tensor) else i
            for i, need in zip(inputs, wanted, strict=True)
        ]
        with torch.enable_grad():
            made = ctx.owner.original(*again)
        pairs = [
            (m, g)
            for m, g in zip(made, gradients, strict=True)
            if isinstance(m, torch.Tensor) and m.requires_grad and g is not None
        ]
        sources = [a for a, need in zip(again, wanted, strict=True) if need]
        found = iter(
            torch.autograd.grad(
                [m for m, _ in pairs], sources, [g for _, g in pairs], allow_unused=True
            )
        )
        return None, *(next(found) if need else None for need in wanted)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
