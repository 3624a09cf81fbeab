"""Transposed weights of graphs in several pieces: each piece has them as weights of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autotune.torch import backend, pieces
from autotune.torch.native import NativePiece


class Between(nn.Module):
    """Products with one weight before and behind an operator that PyTorch runs, which takes a
    weight turned around as well."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(6) + 0.1 * torch.randn(6, 6))
        self.lower = nn.Parameter(torch.eye(6) + 0.1 * torch.randn(6, 6).triu())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = self.weight.t()
        found = torch.cholesky_solve(x @ turned, self.lower.mT)
        return (found @ turned).relu(), self.lower[0]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many inputs each piece of ours has."""
    counts: list[int] = []

    class Piece(NativePiece):
        def __init__(self, model, inputs, outputs) -> None:  # type: ignore[no-untyped-def]
            super().__init__(model, inputs, outputs)
            counts.append(len(inputs))

    monkeypatch.setattr(pieces, "NativePiece", Piece)
    return counts


@pytest.mark.parametrize("dynamic", [False, True])
def test_no_piece_takes_a_turned_weight_from_another(taken: list[int], dynamic: bool) -> None:
    model = Between()

    def ours(module, inputs):  # type: ignore[no-untyped-def]
        return backend(module, inputs, options={"machine": "nominal", "min_gain": 0})

    fast = torch.compile(model, backend=ours, dynamic=dynamic)
    x = torch.randn(6, 6)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
        assert taken == [1, 1]
        model.weight.data.add_(0.5)
        model.lower.data.mul_(2)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
        model.weight.data = torch.randn(6, 6)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
