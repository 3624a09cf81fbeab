"""Graphs of one model have one copy of their weights, and build no kernel twice."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from autotune.runtime.model import CompiledModel
from autotune.torch import backend
from autotune.torch.model_parts import ModelParts, parts_of
from autotune.torch.options import CompileOptions

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[CompiledModel]:
    """What is compiled by the backend."""
    made: list[CompiledModel] = []
    compiled = CompileOptions.compiled

    def watched(self: CompileOptions, graph: object, parts: ModelParts | None = None) -> object:
        model = compiled(self, graph, parts)  # type: ignore[arg-type]
        assert isinstance(model, CompiledModel)
        made.append(model)
        return model

    monkeypatch.setattr(CompileOptions, "compiled", watched)
    return made


class Halves(nn.Module):
    """The same layer in two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(300, 300)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x).relu()
        torch._dynamo.graph_break()
        made: torch.Tensor = self.layer(x).relu()
        return made


def same_memory(one: CompiledModel, other: CompiledModel) -> bool:
    return np.shares_memory(one.image.constants, other.image.constants)


def test_graphs_of_a_model_share_their_weights(models: list[CompiledModel]) -> None:
    model, x = Halves().eval(), torch.randn(4, 300)
    with torch.no_grad():
        found = torch.compile(model, backend="autotune", options=PLAIN)(x)
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    first, second = models
    assert same_memory(first, second)
    assert second.image.constants.nbytes == first.image.constants.nbytes


def test_models_with_weights_of_their_own_share_nothing(models: list[CompiledModel]) -> None:
    x = torch.randn(4, 300)
    layers = [nn.Linear(300, extent) for extent in (300, 200)]
    with torch.no_grad():
        for layer in layers:
            found = torch.compile(layer, backend="autotune", options=PLAIN)(x)
            torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-5)
    assert not same_memory(*models)


def test_changed_weights_are_packed_beside_those_in_use(models: list[CompiledModel]) -> None:
    model, x = Halves().eval(), torch.randn(4, 300)
    fast = torch.compile(model, backend="autotune", options=PLAIN)
    with torch.no_grad():
        for _ in range(4):
            fast(x)
            fast(x)  # the first call after a change is eager's
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            model.layer.weight.data.mul_(-0.5)
    assert len(models) == 8


def test_no_parts_outlive_their_graphs() -> None:
    weight = torch.randn(3)
    parts = parts_of([weight], ())
    assert parts is not None
    assert parts_of([torch.randn(3), weight], ()) is parts
    assert parts_of([weight], ("threads", 2)) is not parts
    number = id(parts)
    del parts
    gc.collect()
    again = parts_of([weight], ())
    assert again is not None
    assert id(again) != number or again._reserved == 0
    assert parts_of([], ()) is None


def test_a_full_block_is_followed_by_another(models: list[CompiledModel]) -> None:
    """The second graph has more weights than were reserved for the first one's."""

    class Grown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = nn.Linear(8, 3000), nn.Linear(3000, 3000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.small(x).relu()
            torch._dynamo.graph_break()
            made: torch.Tensor = self.large(x) + self.small.bias
            return made

    model, x = Grown().eval(), torch.randn(2, 8)
    compiled = torch.compile(model, backend=lambda g, i: backend(g, i, options=PLAIN))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert not same_memory(*models)
