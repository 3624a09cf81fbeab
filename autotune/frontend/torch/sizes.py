"""Sizes that only a call knows. In: a graph with symbolic sizes, and a call's inputs. Out: what
every node gives, with sizes as numbers; or sizes of PyTorch as those of graphs."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._sympy.functions import FloorDiv, Mod

from autotune.errors import UnsupportedOpError
from autotune.sizes import is_size


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


class OpenSizes:
    """Sizes of PyTorch, expressions of symbols, as those of `autotune.sizes`."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        """`symbols`: what each symbol of PyTorch's stands for."""
        self._symbols = symbols

    def of(self, amount: Any) -> int:
        """A number, or PyTorch's expression, as a number or a size. Raises UnsupportedOpError."""
        if not isinstance(amount, torch.SymInt):
            return amount if is_size(amount) else int(amount)
        return self._of(amount.node.expr)

    def _of(self, expression: Any) -> int:
        if expression.is_Integer:
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            return self._symbols[str(expression)]
        parts = [self._of(part) for part in expression.args]
        if isinstance(expression, sympy.Add):
            return sum(parts)
        if isinstance(expression, sympy.Mul):
            return math.prod(parts)
        if isinstance(expression, sympy.Pow) and not is_size(parts[1]) and parts[1] >= 0:
            return functools.reduce(operator.mul, [parts[0]] * parts[1], 1)
        if isinstance(expression, FloorDiv):
            return parts[0] // parts[1]
        if isinstance(expression, Mod):
            return parts[0] % parts[1]
        raise UnsupportedOpError(f"a size {expression} is not supported")


KNOWN = OpenSizes({})
"""Where every size is a number."""
