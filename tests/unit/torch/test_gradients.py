"""Gradients beyond one backward pass: of gradients, inside of a graph, and in low precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.torch import backend

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def compiled(function: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="autotune", options=PLAIN)


def test_gradients_of_gradients_are_right() -> None:
    """A penalty on how steep a network is, as critics are trained with."""
    model, x = network(), torch.randn(5, 6)
    fast = compiled(model)

    def gradients(called: Callable[..., Any]) -> Any:
        given = x.clone().requires_grad_()
        (steep,) = torch.autograd.grad(called(given).sum(), given, create_graph=True)
        loss = (steep.norm(dim=1) - 1).pow(2).mean() + called(given).mean()
        return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

    expected = gradients(model)
    for _ in range(3):
        torch.testing.assert_close(gradients(fast), expected, rtol=1e-4, atol=1e-5)


def test_a_tensor_that_is_given_twice_has_both_gradients() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() * y.exp()

    fast, x = compiled(function), torch.randn(4, requires_grad=True)

    def gradients(called: Callable[..., Any]) -> Any:
        (first,) = torch.autograd.grad(called(x, x).sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    for _ in range(2):
        torch.testing.assert_close(gradients(fast), gradients(function))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_graph_that_takes_gradients_takes_them(recorded: bool, wanted: bool) -> None:
    """Whether its caller records gradients, and whether some are wanted of its inputs."""

    def function(x: torch.Tensor) -> Any:
        steep = torch.func.grad(lambda t: (t**3).sum())(x)
        return steep, torch.func.vjp(torch.sin, x)[1](x)[0]

    fast = compiled(function)
    with torch.set_grad_enabled(recorded):
        for _ in range(2):
            x = torch.randn(5, requires_grad=wanted)
            torch.testing.assert_close(fast(x), function(x))
            if recorded and wanted:
                pairs = [torch.autograd.grad(f(x)[0].sum(), x) for f in (fast, function)]
                torch.testing.assert_close(*pairs)


def test_gradients_are_of_the_precision_that_the_call_had() -> None:
    model, x = network(), torch.randn(4, 6)
    fast = compiled(model)

    def gradients(called: Callable[..., Any]) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = called(x)
        return torch.autograd.grad(made.float().square().sum(), list(model.parameters()))

    expected = gradients(model)
    for _ in range(2):
        torch.testing.assert_close(gradients(fast), expected, rtol=2e-2, atol=2e-2)


def test_results_that_no_gradient_reaches_record_none() -> None:
    """A measure beside a loss is read by `numpy()`, which refuses what records gradients."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        made = x @ w
        with torch.no_grad():
            share = (made > 0).float().mean()
        return made.sum(), share, (made * 2).detach() + 1, torch.zeros_like(w), x * 3

    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    found, expected = compiled(function)(x, w), function(x, w)
    assert [f.requires_grad for f in found] == [e.requires_grad for e in expected]
    torch.testing.assert_close(found, expected)


def test_complex_results_have_gradients() -> None:
    x = torch.randn(8, requires_grad=True)
    found, expected = (
        torch.autograd.grad(called(x).abs().sum(), x)
        for called in (compiled(torch.fft.rfft), torch.fft.rfft)
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_who_goes_backward_in_what_is_compiled_has_no_more_graphs() -> None:
    """PyTorch would record our own backward pass, too, for every graph."""
    model = network()
    recorded = []

    def counted(module: Any, inputs: Any) -> Any:
        recorded.append(module)
        return backend(module, inputs, options=PLAIN)

    @torch.compile(backend=counted)
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return x * 2

    x, found = torch.randn(5, 6), []
    for _ in range(3):
        model.zero_grad()
        step(x)
        found.append([p.grad for p in model.parameters()])
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, [list(expected)] * 3, rtol=1e-4, atol=1e-5)
    assert len(recorded) == 2


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.name == "autotune.torch"]


def test_attention_that_drops_nothing_is_ours_where_gradients_are_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who forgets `torch.no_grad` has weights that record gradients; PyTorch's attention may draw
    random numbers, and draws none in evaluation."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.Linear(16, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.heads(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
            share = 0.5 if self.training else 0.0
            return nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=share)

    model, x = Attention().eval(), torch.randn(2, 5, 16)
    fast = compiled(model)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert not told(caplog)

    def gradient(called: Callable[..., Any]) -> Any:
        return torch.autograd.grad(called(x).square().sum(), model.heads.weight)

    torch.testing.assert_close(gradient(fast), gradient(model), rtol=1e-4, atol=1e-4)
    model.train()
    fast(x)
    assert any("draws random numbers" in line for line in told(caplog))
