"""A piece of a model that is ours: tensors in, tensors out. In: a compiled model and its ports.

Tensors that lie in memory as they did when the piece was compiled are read where they are, and
results are memory that the model made for them: nothing is copied in between.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from autotune.frontend.torch.dtypes import HALVES, PARTS
from autotune.frontend.torch.importer import TensorPort
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from autotune.torch.forms import Form, has_memory, have_forms, never, same_forms
from autotune.torch.tensor_call import TensorCall, tensor_call
from autotune.torch.versions import empty_maker
from autotune.torch.watch import WeightWatch, taker
from autotune.types import Array

QuickCall = Callable[[tuple[Any, ...]], list[torch.Tensor] | None]
KEPT_SHAPES = 256
"""Sets of shapes whose calls a piece of open sizes keeps, those met last."""


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
        self.direct: AnyDirectCall | None = None
        if isinstance(model, CompiledModel):
            self.direct = direct_call(model, inputs, outputs)
        elif isinstance(model, SizedModel) and model.serves_all:
            self.direct = OpenDirectCall(model, inputs, outputs)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.direct is not None:
            made = self.direct(tensors)
            if made is not None:
                return made
        return self._turned(tensors)

    def _turned(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        feeds: dict[str, Array] = {}
        for (port, order), given in zip(self._inputs, tensors, strict=True):
            tensor = _in_parts(given) if port.dtype.is_complex else given
            moved = tensor if order is None else tensor.permute(order)
            feeds[port.name] = _array(moved, port)
        made = self.model.run(feeds)
        results = []
        for port, order in self._outputs:
            tensor = torch.from_numpy(made[port.name])
            if port.dtype in HALVES:
                tensor = tensor.to(port.dtype)
            tensor = tensor if order is None else tensor.permute(order)
            tensor = _of_parts(tensor, port.dtype) if port.dtype.is_complex else tensor
            if port.strides is not None:
                spread = torch.empty_strided(tensor.shape, port.strides, dtype=tensor.dtype)
                tensor = spread.copy_(tensor)
            results.append(tensor)
        return results


class DirectCall:
    """Calls of a model on the memory of tensors, in as few steps of Python as it takes."""

    def __init__(
        self,
        model: CompiledModel,
        takes: Sequence[Form],
        gives: Sequence[Form],
        places: Sequence[int] | None = None,
    ) -> None:
        """The forms of what the model takes and gives, in its own order; `places`: of what it
        takes in the sequences that it is called with."""
        self._model = model
        self._forms = list(takes), [*gives]
        numbers = range(len(takes)) if places is None else places
        self._takes = [(i, *form) for i, form in zip(numbers, takes, strict=True)]
        self._gives = [(shape, strides, dtype) for dtype, shape, strides in gives]
        self._call = self.watching(WeightWatch({}))

    def at(self, places: Sequence[int]) -> DirectCall:
        """The same, where it finds what it takes in these places of a longer sequence."""
        return DirectCall(self._model, *self._forms, places)

    def __call__(self, tensors: Sequence[Any]) -> list[torch.Tensor] | None:
        """None where a tensor is not as the model takes it."""
        return self._call(tuple(tensors))

    def watching(self, watch: WeightWatch) -> QuickCall:
        """The same as one function of a tuple, which also gives None where `watch` sees that a
        weight among the tensors has changed. What it has looked at step by step it takes by one
        native call the next time."""
        empty, gives, run = empty_maker(), self._gives, self._model.run_through
        slowly = self._by_steps(watch)
        fits, native = self._native(watch, None)

        def call(tensors: tuple[Any, ...]) -> list[torch.Tensor] | None:
            nonlocal fits, native
            enter = native
            if fits(*tensors) and enter is not None:
                made = [empty(*form) for form in gives]
                if run(enter.enter, tensors, made):
                    return made
            found = slowly(tensors)
            if found is not None:
                fits, native = self._native(watch, tensors)
            return found

        return call

    def _native(
        self, watch: WeightWatch, tensors: tuple[Any, ...] | None
    ) -> tuple[Callable[..., bool], TensorCall | None]:
        """What says that tensors are as these, and what runs the model on such ones; None where
        there is nothing that does."""
        fits = None if tensors is None else same_forms(tensors)
        if tensors is None or fits is None or not self._model.by_words():
            return never, None
        places = [place for place, *_ in self._takes]
        return fits, tensor_call(tensors, watch, places, len(self._gives))

    def _by_steps(self, watch: WeightWatch) -> QuickCall:
        run_at, empty, address = self._model.run_at, empty_maker(), torch.Tensor.data_ptr
        taken = taker([place for place, *_ in self._takes])
        forms, gives = self._forms[0], self._gives

        def call(tensors: tuple[Any, ...]) -> list[torch.Tensor] | None:
            given = taken(tensors)
            if watch.replaced(tensors) or not have_forms(given, forms):
                return None
            made = [empty(*form) for form in gives]
            addresses = [*map(address, given), *map(address, made)]
            return made if run_at(addresses, watch.words) else None

        return call


class OpenDirectCall:
    """Calls of a model of open sizes on the memory of tensors: a DirectCall for each set of
    shapes."""

    def __init__(
        self,
        model: SizedModel,
        inputs: Sequence[TensorPort],
        outputs: Sequence[TensorPort],
        places: Sequence[int] | None = None,
    ) -> None:
        """`places`: see DirectCall."""
        self._model, self._inputs, self._outputs = model, inputs, outputs
        self._places = [*range(len(inputs))] if places is None else [*places]
        self._call = self.watching(WeightWatch({}))

    def at(self, places: Sequence[int]) -> OpenDirectCall:
        """The same, where it finds what it takes in these places of a longer sequence."""
        return OpenDirectCall(self._model, self._inputs, self._outputs, places)

    def __call__(self, tensors: Sequence[Any]) -> list[torch.Tensor] | None:
        """None where a tensor is not as the model takes it."""
        return self._call(tuple(tensors))

    def watching(self, watch: WeightWatch) -> QuickCall:
        """See DirectCall."""
        calls: OrderedDict[tuple[Any, ...], QuickCall] = OrderedDict()
        taken = taker(self._places)

        def call(tensors: tuple[Any, ...]) -> list[torch.Tensor] | None:
            given = taken(tensors)
            if not all(map(has_memory, given)):
                return None
            shapes = tuple([t.shape for t in given])
            found = calls.get(shapes)
            if found is None:
                found = calls[shapes] = self._at_shapes(shapes, watch)
                if len(calls) > KEPT_SHAPES:
                    calls.popitem(last=False)
            return found(tensors)

        return call

    def _at_shapes(self, shapes: Sequence[Sequence[int]], watch: WeightWatch) -> QuickCall:
        pairs = zip(self._inputs, shapes, strict=True)
        stored = tuple([tuple([shape[d] for d in port.order]) for port, shape in pairs])
        model = self._model.ready(stored)
        found = model and direct_call(model, self._inputs, self._outputs)
        return found.at(self._places).watching(watch) if found else slowly


AnyDirectCall = DirectCall | OpenDirectCall


def slowly(_: tuple[Any, ...]) -> None:
    """A quick call that there is none for."""


def direct_call(
    model: CompiledModel, inputs: Sequence[TensorPort], outputs: Sequence[TensorPort]
) -> DirectCall | None:
    """None for models whose ports are not tensors' own memory."""
    if [*model.inputs, *model.outputs] != [p.name for p in (*inputs, *outputs)]:
        return None
    types = {**model.inputs, **model.outputs}
    ports = (*inputs, *outputs)
    if any(
        p.dtype in HALVES or p.dtype.is_complex or not math.prod(types[p.name].shape)
        for p in ports
    ):
        return None
    if any(p.strides is not None for p in outputs):
        return None
    if not model.by_address():
        return None
    takes, gives = ([_form(p, types[p.name].shape) for p in some] for some in (inputs, outputs))
    return DirectCall(model, takes, gives)


def _form(port: TensorPort, stored: tuple[int, ...]) -> Form:
    """A tensor of a port, whose dimensions lie in memory as `stored`, dense."""
    shape, strides = [1] * len(stored), [1] * len(stored)
    step = 1
    for dim, extent in zip(reversed(port.order), reversed(stored), strict=True):
        shape[dim], strides[dim] = extent, step
        step *= extent
    return port.dtype, tuple(shape), tuple(strides)


def _in_parts(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor with its parts as a last dimension."""
    return torch.view_as_real(tensor.detach().resolve_conj().resolve_neg())


def _of_parts(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The complex tensor that has these parts as a last dimension; PyTorch looks at strides of
    nothing, too."""
    if not tensor.numel():
        return torch.empty(tensor.shape[:-1], dtype=dtype)
    return torch.view_as_complex(tensor)


def _array(tensor: torch.Tensor, port: TensorPort) -> Array:
    # Some operators of PyTorch give other types than it records of them.
    wanted = PARTS.get(port.dtype, port.dtype)
    tensor = tensor.to(torch.float32 if port.dtype in HALVES else wanted)
    try:
        return tensor.numpy()
    except RuntimeError:  # it requires gradients, or its numbers are still to be negated
        return tensor.detach().resolve_neg().numpy()


def _moved(order: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if order == tuple(range(len(order))) else order


def _back(order: tuple[int, ...]) -> tuple[int, ...] | None:
    moved = _moved(order)
    return moved and tuple(moved.index(d) for d in range(len(moved)))
