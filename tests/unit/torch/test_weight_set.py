"""One graph for several sets of weights: layers that are alike and compiled each for itself."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from autotune.torch.graph import CompiledGraph
from autotune.torch.weight_set import WeightSets

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(self.inner(x).relu())
        return x + made


def layers(count: int) -> list[Layer]:
    return [Layer().eval() for _ in range(count)]


def through(parts: list[Layer], x: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = part(x)
    return x


def expected(parts: list[Layer], x: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = part.forward(x)
    return x


def never(*_: object) -> None:
    raise AssertionError("PyTorch runs a graph")


def test_layers_that_are_alike_have_a_program_each(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, x = layers(4), torch.randn(3, 6)
    for part in parts:
        part.compile(backend="autotune", options=PLAIN)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(through(parts, x), expected(parts, x))
        monkeypatch.setattr(CompiledGraph, "_eager", never)
        for _ in range(2):
            torch.testing.assert_close(through(parts, x), expected(parts, x))
            torch.testing.assert_close(through(parts[::-1], x), expected(parts[::-1], x))


def test_a_layer_whose_weights_change_is_packed_anew() -> None:
    parts, x = layers(3), torch.randn(3, 6)
    for part in parts:
        part.compile(backend="autotune", options=PLAIN)
    with torch.no_grad():
        through(parts, x)
        through(parts, x)
        for change in (
            lambda w: w.mul_(2),
            lambda w: w.data.add_(1),
            lambda w: setattr(w, "data", torch.randn(6, 6)),
        ):
            change(parts[1].inner.weight)
            for _ in range(4):
                torch.testing.assert_close(through(parts, x), expected(parts, x))


def test_weights_that_nobody_else_holds_are_let_go() -> None:
    first, second = torch.randn(4), torch.randn(4)
    sets = WeightSets({1: first})
    sets.meet((None, second))
    assert sets.find((None, first)) is not None
    third = nn.Parameter(torch.randn(4))
    sets.meet((None, third))
    known = [sets.find((None, t)) for t in (first, second, third)]
    assert all(k is not None and k.settled for k in known)
    del known, first
    second.data = torch.randn(4)
    fourth = torch.randn(4)
    gc.collect()
    sets.meet((None, fourth))
    assert len(sets) == 2
    found = sets.find((None, fourth))
    assert found is not None
    assert not found.settled
