"""Sizes that only a call knows. In: a graph with symbolic sizes, and a call's inputs or sizes of
its symbols. Out: what every node gives, with sizes as numbers; or sizes of PyTorch as those of
graphs."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.functions import FloorDiv, Mod

from autotune.errors import UnsupportedOpError
from autotune.sizes import UNBOUNDED, is_size, symbol, value_at

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_open(values: Mapping[fx.Node, Any]) -> bool:
    """Whether any tensor has a size, or any number a value, that is a symbol."""
    return any(_symbolic(v) for v in values.values())


def _symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_symbolic(v) for v in value)
    if isinstance(value, torch.Tensor):
        return any(isinstance(e, torch.SymInt) for e in (*value.shape, *value.stride()))
    return isinstance(value, SYMBOLIC)


def decided_by_a_run(values: Mapping[fx.Node, Any]) -> str:
    """What is no number before a run, and follows from no size: how many elements there are of a
    kind, or a number that lies in a tensor; empty where there is nothing of it."""
    for node, value in values.items():
        if isinstance(value, (torch.Tensor, *SYMBOLIC)) and free_unbacked_symbols(value):
            return str(node.target)
    return ""


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
        mode.from_tensor(i.detach(), static_shapes=True)  # without a nested tensor's symbols
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
            if str(expression) not in self._symbols:
                raise UnsupportedOpError(f"the size {expression} is known to a run only")
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


class OpenGraphSizes:
    """The symbols of a graph: their ranges, and what its nodes give at sizes."""

    def __init__(self, module: fx.GraphModule, values: Mapping[fx.Node, Any]) -> None:
        """`values`: what every node gives, with symbols. Raises UnsupportedOpError for sizes that
        are no expressions of the inputs' symbols."""
        self._module, self.values = module, values
        sources = {n: values[n] for n in module.graph.nodes if n.op == "placeholder"}
        nodes = {
            str(s.node.expr): s.node
            for value in sources.values()
            for s in _amounts(value)
            if isinstance(s.node.expr, sympy.Symbol)
        }
        self._environment = next((n.shape_env for n in nodes.values()), None)
        self.ranges = {name: _range(node) for name, node in nodes.items()}
        """Least and most of every symbol."""
        self.usual = {name: int(node.hint) for name, node in nodes.items()}
        """A size of every symbol: what the graph was recorded with."""
        self.sizes = OpenSizes({name: symbol(name, *r) for name, r in self.ranges.items()})
        self.examples = self.at(self.usual)
        """What every node gives at these."""

    def at(self, sizes: Mapping[str, int]) -> dict[fx.Node, Any]:
        """What every node gives where the symbols have these sizes."""

        def number(amount: Any) -> int:
            return value_at(self.sizes.of(amount), sizes)

        def example(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return number(value) if isinstance(value, torch.SymInt) else value
            shape, strides = (tuple(map(number, a)) for a in (value.shape, value.stride()))
            return torch.empty_strided(shape, strides, dtype=value.dtype)

        placeholders = (n for n in self._module.graph.nodes if n.op == "placeholder")
        return sized_values(self._module, [example(self.values[n]) for n in placeholders])

    @contextlib.contextmanager
    def undecided(self) -> Iterator[None]:
        """A block in which nothing is made of an amount that holds for its usual size only, which
        PyTorch would make a condition of the graph: an UnsupportedOpError is raised instead."""
        environment: Any = self._environment

        def evaluate(expression: Any, *_: object, **__: object) -> Any:
            known = environment._maybe_evaluate_static(expression)
            if known is None:
                raise UnsupportedOpError(f"{expression} is known to a run only")
            return known

        if environment is None:
            yield
            return
        environment.evaluate_expr = evaluate
        try:
            yield
        finally:
            del environment.evaluate_expr


def _amounts(value: Any) -> Iterable[torch.SymInt]:
    given = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return (a for a in given if isinstance(a, torch.SymInt))


def _range(node: Any) -> tuple[int, int]:
    """Least and most of a symbol, as PyTorch's conditions have them."""
    found = node.shape_env.bound_sympy(node.expr)
    # What has no end is an expression of PyTorch's own kind.
    most = int(found.upper) if found.upper.is_Integer else UNBOUNDED
    least = int(found.lower) if found.lower.is_Integer else 0
    return max(least, 0), min(most, UNBOUNDED - 2)
