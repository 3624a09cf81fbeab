"""A model of several stages. In: a model in memory, and how a graph is compiled. Out: a
`StagedModel`, which runs on arrays of any shapes that fit.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import IO, Any, NoReturn

import numpy as np
import onnx

from autotune.compiler.sized import OpenProgram
from autotune.errors import ArtifactError, ClosedError, FallbackWarning, FeedError
from autotune.fallback.parts import CompileGraph
from autotune.fallback.staged_graph import How, StagedGraph
from autotune.runtime.closing import Closing
from autotune.runtime.counting import Counting
from autotune.runtime.results import check_names
from autotune.runtime.state import StateSession


class StagedModel(Closing):
    """A model that runs in stages: parts with kernels, each one native call that is compiled when
    it first meets shapes (and values that decide shapes), branches and loops whose conditions a
    run knows, and parts that others run. Inputs are
    arrays, lists of arrays where the model has sequences, and None where it has an optional value
    that is not there. Safe to call from several threads, which take turns. As a context manager it
    is closed at the end."""

    def __init__(
        self,
        model: onnx.ModelProto,
        compiled: CompileGraph,
        opened: OpenProgram,
        counting: Counting,
        *,
        fallback: bool = True,
    ) -> None:
        graph, tensors = model.graph, {t.name for t in model.graph.initializer}
        self.inputs = MappingProxyType(
            {i.name: i.type for i in graph.input if i.name not in tensors}
        )
        """The ONNX type of every input, by name."""
        self.outputs = MappingProxyType({o.name: o.type for o in graph.output})
        """The same of outputs."""
        self.notes: tuple[str, ...] = ()
        """What runs elsewhere, a line each."""
        self.name = graph.name or "model"
        self._lock, self._closed = threading.RLock(), False
        self._graph = StagedGraph(
            model,
            How(
                compiled=compiled,
                opened=opened,
                counting=counting,
                tell=self._tell,
                fallback=fallback,
            ),
        )

    @property
    def own(self) -> bool:
        """Whether all of it runs in kernels of ours."""
        return self._graph.own

    @property
    def deciding(self) -> frozenset[str]:
        """Values that parts were compiled for, since they decide shapes."""
        return self._graph.deciding

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Iterable[str] | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One inference. Raises what compiling does, and FeedError. Lengths that only a run knows
        have no place to be written to: `out` must not be given."""
        check_names(feeds, self.inputs)
        if out is not None:
            raise FeedError("out: sizes of this model's outputs are known to a run only; leave it")
        given = {name: _given(name, value) for name, value in feeds.items()}
        with self._lock:
            if self._closed:
                raise ClosedError(f"the model {self.name!r} is closed; compile it again")
            values = self._graph.run(given)
        return {name: values[name] for name in (self.outputs if outputs is None else outputs)}

    def updates(self, feeds: Mapping[str, Any]) -> tuple[()]:  # noqa: ARG002
        """No state can be updated in place: see `autotune.runtime.model.CompiledModel.updates`."""
        return ()

    def session(
        self, state: Mapping[str, str], initial: Mapping[str, Any] | None = None
    ) -> StateSession:
        """See `autotune.runtime.model.CompiledModel.session`; what a state is at the beginning
        must be given where its shape is open."""
        return StateSession(self, state, initial, places=False)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> NoReturn:  # noqa: ARG002
        """Refused by an ArtifactError: a model of several stages cannot be saved."""
        raise ArtifactError(
            f"a model in stages ({'; '.join(self.notes) or 'values decide its shapes'}) cannot be "
            "saved; export it with fixed shapes, and without these nodes"
        )

    def close(self) -> None:
        """Give the memory back; whoever runs the model later gets a ClosedError."""
        with self._lock:
            self._closed = True
            self._graph.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._graph.parts)} stages"
        return f"<StagedModel {self.name!r}: {state}>"

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes = (*self.notes, note)
            warnings.warn(note, FallbackWarning, stacklevel=2)


def _given(name: str, value: Any) -> Any:
    """A value of the caller's: an array, a list of arrays, or None."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [np.asarray(item) for item in value]
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise FeedError(f"input {name}: expected an array, got {error}") from None
