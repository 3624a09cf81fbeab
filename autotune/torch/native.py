"""A piece of a model that is ours: tensors in, tensors out. In: a compiled model and its ports.

Tensors that lie in memory as they did when the piece was compiled are read where they are, and
results are memory that the model made for them: nothing is copied in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from autotune.frontend.torch.dtypes import HALVES
from autotune.frontend.torch.importer import TensorPort
from autotune.types import Array


class Model(Protocol):
    """A runner of graphs: a compiled model, or what stands for one."""

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]: ...


class NativePiece:
    """Runs on tensors of the shapes and types that it was compiled for."""

    def __init__(
        self, model: Model, inputs: Sequence[TensorPort], outputs: Sequence[TensorPort]
    ) -> None:
        self.model = model
        self._inputs = [(port, _moved(port.order)) for port in inputs]
        self._outputs = [(port, _back(port.order)) for port in outputs]
        every = (*inputs, *outputs)
        self._plain = all(_moved(p.order) is None and p.dtype not in HALVES for p in every)
        self._names = [port.name for port in inputs]
        self._made = [port.name for port in outputs]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._plain:  # in as few steps of Python as it takes
            try:
                arrays = [tensor.numpy() for tensor in tensors]
            except RuntimeError:
                return self._turned(tensors)
            made = self.model.run(dict(zip(self._names, arrays, strict=True)))
            return [torch.from_numpy(made[name]) for name in self._made]
        return self._turned(tensors)

    def _turned(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        feeds: dict[str, Array] = {}
        for (port, order), tensor in zip(self._inputs, tensors, strict=True):
            moved = tensor if order is None else tensor.permute(order)
            feeds[port.name] = _array(moved, port)
        made = self.model.run(feeds)
        results = []
        for port, order in self._outputs:
            tensor = torch.from_numpy(made[port.name])
            if port.dtype in HALVES:
                tensor = tensor.to(port.dtype)
            results.append(tensor if order is None else tensor.permute(order))
        return results


def _array(tensor: torch.Tensor, port: TensorPort) -> Array:
    if port.dtype in HALVES:
        tensor = tensor.to(torch.float32)
    try:
        return tensor.numpy()
    except RuntimeError:  # it requires gradients, or its numbers are still to be negated
        return tensor.detach().resolve_neg().numpy()


def _moved(order: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if order == tuple(range(len(order))) else order


def _back(order: tuple[int, ...]) -> tuple[int, ...] | None:
    moved = _moved(order)
    return moved and tuple(moved.index(d) for d in range(len(moved)))
