"""The registry of importers of ATen operators, and the context that one works with.

An importer is one function: it reads the call's arguments through an `AtenCall`, by the names that
the operator's schema gives them, adds ops to the graph, and returns the value (or values) it made:

    @aten("leaky_relu")
    def leaky_relu(n: AtenCall) -> str:
        return n.op("leaky_relu", n.value("self"), alpha=n.number("negative_slope"))

Importers raise ModelError or UnsupportedOpError with a plain message; what they refuse runs as
PyTorch has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import fx

from autotune.errors import UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.fourier import ComplexValue
from autotune.frontend.torch.dtypes import PARTS, graph_dtype
from autotune.frontend.torch.sizes import KNOWN, OpenSizes
from autotune.graph.build import GraphBuilder
from autotune.registry import Registry
from autotune.types import Array

AtenImporter = Callable[["AtenCall"], "str | ComplexValue | tuple[str | ComplexValue | None, ...]"]
ATEN_IMPORTERS: Registry[AtenImporter] = Registry(
    "ATen operator", room="autotune.frontend.torch.importer"
)
Number = bool | int | float
COMPLEX = "complex."
"""What the names of importers begin with that take or give complex tensors."""


def aten(*operators: str) -> Callable[[AtenImporter], AtenImporter]:
    """Register a function as the importer of ATen operators: `add` is every overload of it that
    has no importer of its own, `add.Scalar` is one. Those of other libraries have the library's
    name before theirs, those that take or give complex tensors `complex.`."""

    def register(function: AtenImporter) -> AtenImporter:
        for operator in operators:
            ATEN_IMPORTERS.add(operator, function)
        return function

    return register


def importer_of(target: Any, *, of_complex: bool = False) -> AtenImporter | None:
    """The importer of an overload, None where there is none; `of_complex`: where some of what it
    takes or gives is complex."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    library = COMPLEX if of_complex else ""
    library += "" if target.namespace == "aten" else f"{target.namespace}."
    packet = f"{library}{target.overloadpacket.__name__}"
    for name in (f"{packet}.{target._overloadname}", packet):
        if name in ATEN_IMPORTERS:
            return ATEN_IMPORTERS.get(name)
    return None


class AtenCall(Assembler):
    """One call of an ATen operator during import: its arguments, what it gives, and the graph
    being built."""

    def __init__(
        self,
        builder: GraphBuilder,
        node: fx.Node,
        values: Mapping[fx.Node, Any],
        tensors: Mapping[fx.Node, Any],
        sizes: OpenSizes = KNOWN,
    ) -> None:
        """`values`: by node, the name of a value of the graph, a number, or a tuple of values.
        `tensors`: what each gives in PyTorch, without data. `sizes`: what sizes of these are."""
        super().__init__(builder)
        self.target = node.target
        self.result = tensors[node]
        """A tensor (or several), without data, as the call gives it."""
        self._node, self._tensors, self._sizes = node, tensors, sizes
        self._values = values
        self._arguments = _bound(node, values)

    # ------------------------------------------------------------------------------ arguments

    def value(self, name: str) -> str:
        """The graph value of a tensor; of a number a constant of the type that it would have."""
        given = self._arguments[name]
        if isinstance(given, Number):
            dtype = {bool: "bool", int: "int64", float: "float32"}[type(given)]
            return self.constant(given, dtype)
        if not isinstance(given, str):
            raise UnsupportedOpError(f"argument {name} must be a tensor, got {given!r}")
        return given

    def optional(self, name: str) -> str | None:
        """The graph value of a tensor that may be left out."""
        return None if self._arguments[name] is None else self.value(name)

    def first_tensor(self) -> torch.Tensor:
        """The first argument as PyTorch has it, without data."""
        found = self._tensors[self._node.all_input_nodes[0]]
        assert isinstance(found, torch.Tensor)
        return found

    def values(self, name: str) -> list[str]:
        """The graph values of a list of tensors."""
        return [str(v) for v in self._arguments[name]]

    def complex_value(self, name: str) -> ComplexValue:
        """A tensor or a number as a complex one."""
        given = self._arguments[name]
        if isinstance(given, ComplexValue):
            return given
        if isinstance(given, complex):
            real, imaginary = (self.constant(p, self.made_dtype) for p in (given.real, given.imag))
            return ComplexValue(real, imaginary)
        real = self.as_made(name)
        return ComplexValue(real, self.zeros(real))

    def part(self, imaginary: bool, widened: Sequence[str] = ()) -> AtenCall:
        """The same call of the real or of the imaginary parts of complex tensors; of the arguments
        `widened` real ones have an imaginary part, which is 0."""

        def chosen(name: str, given: Any) -> Any:
            if isinstance(given, ComplexValue):
                return given.imaginary if imaginary else given.real
            if isinstance(given, list | tuple):
                return [chosen(name, g) for g in given]
            if isinstance(given, complex):
                return given.imag if imaginary else given.real
            if name not in widened or not imaginary or not isinstance(given, str | Number):
                return given
            return self.zeros(given) if isinstance(given, str) else 0

        call = copy.copy(self)
        call._arguments = {name: chosen(name, g) for name, g in self._arguments.items()}
        return call

    def with_argument(self, name: str, given: Any) -> AtenCall:
        """The same call with another argument."""
        call = copy.copy(self)
        call._arguments = self._arguments | {name: given}
        return call

    def optionals(self, name: str) -> list[str | None]:
        """The graph values of a list of tensors some of which are left out."""
        return list(self._arguments[name])

    def value_at(self, given: str | None) -> str:
        """A tensor of a list, which must be there."""
        if given is None:
            raise UnsupportedOpError("a tensor is missing")
        return given

    def given(self, name: str) -> Any:
        """An argument as it is: the name of a value, a number, a list of them, or None."""
        return self._arguments[name]

    def arg(self, name: str, default: Any = None) -> Any:
        """An argument that is no tensor; the default where it is None."""
        given = self._arguments[name]
        if isinstance(given, str) and "str" not in self.target_type(name):
            raise UnsupportedOpError(f"argument {name} is known to a run only")
        return default if given is None else given

    def node_of(self, name: str) -> fx.Node | None:
        """The node that an argument is, where it is one."""
        places = [a.name for a in self.target._schema.arguments]  # type: ignore[union-attr]
        found = dict(zip(places, self._node.args, strict=False)) | self._node.kwargs
        return found.get(name) if isinstance(found.get(name), fx.Node) else None

    def made_by(self, node: Any) -> Any:
        """What a node gives: the name of a value, a number, or None where it is not there."""
        return self._values.get(node) if isinstance(node, fx.Node) else node

    def array_of(self, node: Any) -> Array | None:
        """The array of a node that is constant, else None."""
        value = self._values.get(node)
        return self.known(value) if isinstance(value, str) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments' names."""
        return tuple(self._arguments)

    def has(self, name: str) -> bool:
        """Whether the operator's overload has an argument of that name."""
        return name in self._arguments

    def refuse(self, what: str) -> NoReturn:
        """Leave the call to PyTorch."""
        raise UnsupportedOpError(f"{what}: not supported")

    def number(self, name: str, default: Number = 0) -> float:
        return float(self.arg(name, default))

    def integer(self, name: str, default: int = 0) -> int:
        return self._sizes.of(self.arg(name, default))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; one alone counts as a list."""
        given = self.arg(name, ())
        listed = given if isinstance(given, list | tuple) else (given,)
        return tuple(map(self._sizes.of, listed))

    def axis(self, name: str, rank: int, default: int = 0) -> int:
        """A dimension, counted from the front; of a tensor of rank 0 there is one, too."""
        return self.integer(name, default) % max(rank, 1)

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Dimensions, counted from the front and sorted; all of them where none are given."""
        given = self.arg(name) if self.has(name) else None
        if given is None or given == []:
            return tuple(range(rank))
        listed = [given] if isinstance(given, int) else given
        return tuple(sorted({int(a) % max(rank, 1) for a in listed})) if rank else ()

    def target_type(self, name: str) -> str:
        """The type that the schema gives an argument."""
        return next(str(a.type) for a in self.target._schema.arguments if a.name == name)  # type: ignore[union-attr]

    # ---------------------------------------------------------------------------------- result

    def asked(self, place: int) -> bool:
        """Whether somebody reads that one of several results."""
        return any(user.args[1:] == (place,) for user in self._node.users)

    @property
    def made_shape(self) -> tuple[int, ...]:
        """The shape of what the call gives (of its first tensor)."""
        return tuple(map(self._sizes.of, self._first().shape))

    @property
    def made_dtype(self) -> str:
        """The graph's type of what the call gives (of its first tensor), or of its parts."""
        dtype = self._first().dtype
        return graph_dtype(PARTS.get(dtype, dtype))

    @property
    def gives_complex(self) -> bool:
        """Whether what the call gives (its first tensor) is complex."""
        return self._first().is_complex()

    def _first(self) -> torch.Tensor:
        found = self.result[0] if isinstance(self.result, list | tuple) else self.result
        assert isinstance(found, torch.Tensor)
        return found

    # ----------------------------------------------------------------------------------- graph

    def constant(self, data: Any, dtype: str | None = None) -> str:
        """A constant; a whole number beyond its type's is wrapped around, as PyTorch does."""
        if type(data) is int and dtype is not None:
            data = np.asarray(data).astype(dtype)
        return super().constant(data, dtype)

    def as_made(self, name: str) -> str:
        """A tensor, or a number, in the element type of what the call gives."""
        return self.in_type(name, self.made_dtype)

    def in_type(self, name: str, dtype: str) -> str:
        """A tensor, or a number, in an element type."""
        given = self._arguments[name]
        if isinstance(given, Number):
            return self.constant(given, dtype)
        return self.cast(self.value(name), dtype)

    def zeros(self, value: str) -> str:
        """Zeros of another value's type."""
        return self.expanded(self.like(0, value), self.shape(value))

    def expanded(self, value: str, shape: Sequence[int]) -> str:
        """Broadcast to a shape."""
        if self.shape(value) == tuple(shape):
            return value
        return self.op("expand", value, shape=tuple(shape))


def _bound(node: fx.Node, values: Mapping[fx.Node, Any]) -> dict[str, Any]:
    """The call's arguments by name, with the schema's defaults."""
    schema = node.target._schema  # type: ignore[union-attr]
    args = fx.node.map_arg(node.args, lambda n: values[n])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n])
    bound = {a.name: a.default_value if a.has_default_value() else None for a in schema.arguments}
    bound.update(zip(bound, args, strict=False))
    bound.update(kwargs)
    return bound
