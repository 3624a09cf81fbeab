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
from onnx import numpy_helper

from autotune.errors import (
    ArtifactError,
    ClosedError,
    FallbackWarning,
    FeedError,
    UnsupportedOpError,
)
from autotune.fallback import foreign
from autotune.fallback.parts import CompileGraph, ForeignPart, OwnPart, RecutError, told
from autotune.fallback.stages import Cut, cut, part_of
from autotune.runtime.closing import Closing
from autotune.runtime.results import check_names

MOST_CUTS = 1000
"""How often a model is cut again, at most: every node but once, and every value."""


class StagedModel(Closing):
    """A model that runs in stages: parts with kernels, each one native call that is compiled when
    it first meets shapes (and values that decide shapes), and parts that others run. Inputs are
    arrays, lists of arrays where the model has sequences, and None where it has an optional value
    that is not there. Safe to call from several threads, which take turns. As a context manager it
    is closed at the end."""

    def __init__(
        self,
        model: onnx.ModelProto,
        compiled: CompileGraph,
        *,
        foreign_nodes: Iterable[str] = (),
        fallback: bool = True,
    ) -> None:
        graph = model.graph
        self._tensors = {t.name: t for t in graph.initializer}
        self.inputs = MappingProxyType(
            {i.name: i.type for i in graph.input if i.name not in self._tensors}
        )
        """The ONNX type of every input, by name."""
        self.outputs = MappingProxyType({o.name: o.type for o in graph.output})
        """The same of outputs."""
        self.notes: tuple[str, ...] = ()
        """What runs elsewhere, a line each."""
        self.name = graph.name or "model"
        self._model, self._compile, self._fallback = model, compiled, fallback
        self._cut = Cut(foreign=frozenset(foreign_nodes))
        self._lock, self._closed = threading.RLock(), False
        self._parts: tuple[OwnPart | ForeignPart, ...] = ()
        self._stage_again()

    @property
    def own(self) -> bool:
        """Whether all of it runs in kernels of ours."""
        return not self._cut.foreign

    @property
    def deciding(self) -> frozenset[str]:
        """Values that parts were compiled for, since they decide shapes."""
        own = (part for part in self._parts if isinstance(part, OwnPart))
        return frozenset(name for part in own for name in part.deciding)

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
        with self._lock:
            values = self._run({name: _given(name, value) for name, value in feeds.items()})
        return {name: values[name] for name in (self.outputs if outputs is None else outputs)}

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> NoReturn:  # noqa: ARG002
        """Raises ArtifactError: a model of several stages cannot be saved."""
        raise ArtifactError(
            f"a model in stages ({'; '.join(self.notes) or 'values decide its shapes'}) cannot be "
            "saved; export it with fixed shapes, and without these nodes"
        )

    def close(self) -> None:
        """Give the memory back; whoever runs the model later gets a ClosedError."""
        with self._lock:
            self._closed = True
            for part in self._parts:
                part.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._parts)} stages"
        return f"<StagedModel {self.name!r}: {state}>"

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """All values that outlive their stage. With the lock."""
        for _ in range(MOST_CUTS):
            if self._closed:
                raise ClosedError(f"the model {self.name!r} is closed; compile it again")
            try:
                return self._run_stages(feeds)
            except RecutError as error:
                self._cut_at(error)
        raise UnsupportedOpError(f"the model {self.name!r} cannot be cut into stages")

    def _run_stages(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        wanted = self.outputs.keys() & self._tensors.keys()
        values = dict(feeds) | {n: numpy_helper.to_array(self._tensors[n]) for n in wanted}
        for part in self._parts:
            values |= part.run(values)
        return values

    def _cut_at(self, error: RecutError) -> None:
        """Cut the model where a stage could not be run. Raises its cause where that is no help."""
        before = self._cut
        if error.value:
            known = before.known_first | {(name, error.value) for name in error.outputs}
            self._cut = Cut(foreign=before.foreign, known_first=known)
        if self._cut == before:
            if not self._fallback:
                raise error.cause
            nodes = before.foreign | set(error.outputs)
            self._cut = Cut(foreign=nodes, known_first=before.known_first)
        if self._cut == before:
            raise error.cause
        self._stage_again()

    def _stage_again(self) -> None:
        for part in self._parts:
            part.close()
        stages = cut(self._model.graph, self._cut)
        parts = [(s, part_of(self._model, s, self._tensors)) for s in stages]
        self._parts = tuple(
            ForeignPart(s, p, self._tell) if s.foreign else OwnPart(s, p, self._compile)
            for s, p in parts
        )
        for stage in stages:
            if stage.foreign:
                self._tell(told(stage, foreign.evaluator_name()))

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
