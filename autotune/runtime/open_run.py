"""Runs of the one program at a set of sizes. In: its native code, arranged for the sizes. Out:
results of arrays that are as the model wants them, and a CompiledModel for what goes beyond.

After a run the caches hold nothing of Python's, and a size that is new must not take much longer
than one that is known: what runs need is made at once, everything else when it is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autotune.memory import address, fresh_array
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_code import Arranged
from autotune.types import Array, dense_strides

if TYPE_CHECKING:
    from autotune.runtime.model import CompiledModel
    from autotune.runtime.open_model import SharedRuns

Output = tuple[str, tuple[int, ...], np.dtype[Any]]


class RunPointers:
    """The pointers of one run at a time, at whatever sizes."""

    __slots__ = ("address", "bases")

    def __init__(self, count: int, constants: int) -> None:
        """`constants`: address of the weights."""
        self.bases = (ctypes.c_void_p * count)()
        self.bases[CONSTANTS] = constants
        self.address = ctypes.addressof(self.bases)


class OpenRun:
    """The program at one set of sizes."""

    __slots__ = ("_arranged", "_make", "_model", "_outputs", "_runs", "_table")

    def __init__(
        self, arranged: Arranged, runs: SharedRuns, make: Callable[[Arranged], CompiledModel]
    ) -> None:
        self._arranged, self._runs, self._make = arranged, runs, make
        self._model: CompiledModel | None = None
        self._outputs = _whole_outputs(arranged)
        rows, width = arranged.table.shape
        self._table = (address(arranged.table), rows, width)

    @property
    def model(self) -> CompiledModel:
        """All that a model of fixed sizes does, at these sizes."""
        if self._model is None:
            self._model = self._make(self._arranged)
        return self._model

    def close(self) -> None:
        """Close the model, if there is one."""
        if self._model is not None:
            self._model.close()

    def run(self, feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array] | None:
        """The outputs, by name, for inputs that have these sizes. None where `model` is to look at
        the inputs, or to make the outputs. Raises ClosedError."""
        outputs, arranged = self._outputs, self._arranged
        if outputs is None:
            return None
        places = []
        for name, kind in arranged.loaded.kinds:
            array = feeds[name]
            if type(array) is not np.ndarray or array.dtype is not kind:
                return None
            if not ((flags := array.flags).c_contiguous and flags.aligned):
                return None
            places.append(address(array))
        out = {name: fresh_array(shape, dtype) for name, shape, dtype in outputs}
        places += map(address, out.values())
        places.append(address(arranged.counts))
        runs = self._runs
        slot = runs.pool.take()
        try:
            self._enter(slot.session, places)
        finally:
            runs.pool.give(slot)
        return out

    def _enter(self, pointers: RunPointers, places: list[int]) -> None:
        runs, bases = self._runs, pointers.bases
        block = runs.arenas.take(self._arranged.arena_bytes)
        try:
            with runs.turn:
                bases[ARENA] = bases[WORKSPACE] = address(block)
                bases[FIRST_INPUT : FIRST_INPUT + len(places)] = places  # type: ignore[assignment]
                runs.code.run_table(*self._table, pointers.address)
        finally:
            runs.arenas.give(block)


def model_of(made: OpenRun | CompiledModel) -> CompiledModel:
    """All that a model of fixed sizes does."""
    return made.model if isinstance(made, OpenRun) else made


def _whole_outputs(arranged: Arranged) -> list[Output] | None:
    """The outputs in order, where each is all of a buffer of its own."""
    known, loaded = arranged.known, arranged.loaded
    if not loaded.simple:
        return None
    out = []
    for port, row, (item, kind) in zip(
        loaded.plan.outputs, loaded.plan.output_bytes, loaded.items, strict=True
    ):
        shape = tuple([known[n] for n in port.shape])
        strides = tuple([known[n] for n in port.strides])
        nbytes = item
        for extent in shape:
            nbytes *= extent
        if known[port.offset] or strides != dense_strides(shape) or nbytes != known[row]:
            return None
        out.append((port.name, shape, kind))
    return out
