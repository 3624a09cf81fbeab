"""Sizes that only a call knows. In: a graph with symbolic sizes, and a call's inputs. Out: what
every node gives, with sizes as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def is_open(values: Mapping[fx.Node, Any]) -> bool:
    """Whether any tensor has a size, or any number a value, that is a symbol."""
    return any(_symbolic(v) for v in values.values())


def _symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_symbolic(v) for v in value)
    if isinstance(value, torch.Tensor):
        return any(isinstance(e, torch.SymInt) for e in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def call_sizes(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Key of the program for a call: shapes and strides of tensors, other values."""
    return tuple(
        (tuple(i.shape), i.stride()) if isinstance(i, torch.Tensor) else i for i in inputs
    )


def sized_values(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """Values of every node for inputs of these sizes: tensors without data, and numbers."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found: dict[fx.Node, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            found[n] = super().run_node(n)
            return found[n]

    given = [
        mode.from_tensor(i, static_shapes=True)
        if isinstance(i, torch.Tensor) and not isinstance(i, FakeTensor)
        else i
        for i in inputs
    ]
    with mode:
        Recorder(module).run(*given)
    return found
