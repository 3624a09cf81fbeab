"""Graphs of PyTorch's compiler that are written to a file (`aot_compile`, `torch.compiler.save`).

In: a graph as Dynamo recorded it, and the options of `torch.compile`. Out: a callable that PyTorch
can save. What is saved is the graph, by PyTorch's own pickles, and the options; where it runs, it
is compiled for each form of its arguments that comes, from the log where one is named.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.aot_compile_types import (
    GraphModuleSerializableCallable,
    SerializableCallable,
)
from torch._dynamo.backends.registry import lookup_backend
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from autotune.errors import ConfigError

_LOGGER = logging.getLogger("autotune.torch")
LENGTH_BYTES = 8
"""Bytes of the length that stands before the options."""
MOST_FORMS = 64
"""Forms of arguments that a graph is compiled for; PyTorch runs what has others."""


class SavedGraph(SerializableCallable):
    """A graph and the options that it is compiled with."""

    def __init__(self, module: fx.GraphModule, options: Mapping[str, Any] | None) -> None:
        self._module, self._options = module, options
        self._compiled: dict[object, Callable[..., Sequence[Any]]] = {}

    @classmethod
    def serialize_compile_artifacts(cls, fn: SavedGraph) -> bytes:
        """Raises ConfigError, of one line, for an option that is no text and no number."""
        graph = GraphModuleSerializableCallable(fn._module)
        try:
            options = json.dumps(fn._options, default=_path).encode()
        except TypeError as error:
            raise ConfigError(f"options of a function to be saved: {error}") from None
        written: bytes = GraphModuleSerializableCallable.serialize_compile_artifacts(graph)
        return len(options).to_bytes(LENGTH_BYTES, "little") + options + written

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> SavedGraph:
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        read = GraphModuleSerializableCallable.deserialize_compile_artifacts(data[end:])
        # Where its arguments came from in Dynamo's frame is not written: it is a graph as others.
        read.graph_module.meta.pop("dynamo_compile_id", None)
        return cls(read.graph_module, json.loads(data[LENGTH_BYTES:end]))

    def __call__(self, *args: Any) -> Sequence[Any]:
        form = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), *map(_form, args))
        compiled = self._compiled.get(form)
        if compiled is None:
            compiled = self._compiled[form] = self._compile(args)
        return compiled(*args)

    def _compile(self, args: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        if len(self._compiled) >= MOST_FORMS:
            _LOGGER.warning("a graph runs in PyTorch: it has over %s forms", MOST_FORMS)
            forward: Callable[..., Sequence[Any]] = self._module.forward
            return forward
        backend: Any = lookup_backend("autotune")
        # What Dynamo has around a backend, for examples of these sizes.
        with tracing(TracingContext(FakeTensorMode())):
            made: Callable[..., Sequence[Any]] = backend(self._module, args, options=self._options)
        return made


def _form(value: Any) -> object:
    """What a graph is compiled for of an argument."""
    if not isinstance(value, torch.Tensor):
        return value
    kind = (value.dtype, value.device, value.requires_grad, type(value))
    return (tuple(value.shape), value.stride(), *kind)


def _path(value: object) -> str:
    if hasattr(value, "__fspath__"):
        return str(value)
    raise TypeError(f"expected texts and numbers, got {type(value).__name__}")
