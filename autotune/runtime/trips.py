"""A compiled model run over and over in one native call: what it makes, it takes in the next trip.
In: the model of a loop's body, and what becomes of its values. Out: arrays behind the last trip.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.base import Library
from autotune.codegen.llvm.backend import load_text
from autotune.codegen.llvm.trips import trips_text
from autotune.memory import address, fresh_array
from autotune.runtime.image import FIRST_INPUT, Port
from autotune.runtime.model import CompiledModel
from autotune.runtime.native_session import NativeSession
from autotune.stored import stored_as
from autotune.target import Target
from autotune.types import Array

BLOCK_BYTES = 1 << 20
"""Rows are collected in blocks of this size where nobody knows how many there will be."""
AT_ONCE = 16
CALL_S = 0.05
"""Trips of the first native call, and its seconds up to which the next one is of twice as many: in
between Python hears of a Ctrl-C."""
SYMBOL = "model_trips"
_LOOP = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64),
    ctypes.c_void_p,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """What becomes of a body's values, by name; what it gives may also be one of its inputs."""

    carried: tuple[tuple[str, str], ...] = ()
    """(input, what it is in the next trip)."""
    collected: tuple[str, ...] = ()
    """What is kept of every trip."""
    moving: tuple[str, ...] = ()
    """Inputs that are another row of an array in every trip."""
    counter: str = ""
    """The input that is the number of the trip."""
    going: str = ""
    """What says whether there is another trip; where the body does not make it, nobody asks."""


class UnevenBodyError(Exception):
    """The body's values do not stay where they are from trip to trip."""


class Trips:
    """A loop over one compiled model. One run at a time."""

    def __init__(self, model: CompiledModel, how: Carrying) -> None:
        """Raises UnevenBodyError."""
        session, image = model.own_session(), model.image
        ports = (*image.inputs, *image.outputs)
        if not isinstance(session, NativeSession) or any(port.declared for port in ports):
            raise UnevenBodyError("the body's values are not what lies in memory")
        if not all(map(session.is_whole, image.outputs)):
            raise UnevenBodyError("outputs of the body lie in other values")
        self._session, self._how = session, how
        self._entry = np.array(session.entry_words, np.int64)
        self._slots = {port.name: FIRST_INPUT + n for n, port in enumerate(image.inputs)}
        self._made = {port.name: port for port in image.outputs}
        self._loop = _LOOP(_library(image.target).address(SYMBOL))

    def run(
        self, given: Mapping[str, Array], steps: Mapping[str, int], first: int, trips: int
    ) -> tuple[int, list[Array], list[Array]]:
        """(trips made, what is carried behind them, a row per trip of what is collected).

        `given`: every input and all that is carried; of what moves, the first row. `steps`: bytes
        from one row to the next. `first`: the number of the first trip, of which there are up to
        `trips`, and one at least."""
        with self._session.held():
            return self._run(given, steps, first, trips)

    def _run(
        self, given: Mapping[str, Array], steps: Mapping[str, int], first: int, trips: int
    ) -> tuple[int, list[Array], list[Array]]:
        how, count = self._how, np.array(first, np.int64)
        fixed = {n: np.require(a, requirements=["C", "A"]) for n, a in given.items()}
        fixed |= {how.counter: count} if how.counter else {}
        run = _Run(self._session, self._slots, self._made, fixed)
        states = [run.carry(name, then) for name, then in how.carried]
        rows = [run.collect(name) for name in how.collected]
        run.place_rest()
        moves = [(run.slots[n], steps[n]) for n in how.moving]
        plan = run.plan([*moves, *((row.slot, row.nbytes) for row in rows)])
        blocks: list[list[Array]] = [[] for _ in rows]
        ends = how.going in self._made
        going = self._made[how.going].base if ends else -1
        done, more, at_once = 0, True, AT_ONCE
        while more and done < trips:
            length = _length(trips - done, sum(row.nbytes for row in rows) if ends else 0)
            for row, block in zip(rows, blocks, strict=True):
                block.append(fresh_array((length, *row.shape), row.dtype))
                run.place(row.slot, block[-1])
            begin, end = done, done + length
            while more and done < end:
                start_s = time.perf_counter()
                made = self._loop(
                    self._entry.ctypes.data, run.pointer, min(at_once, end - done),
                    address(count), going, plan.ctypes.data,
                )  # fmt: skip
                done, more = done + abs(made), made > 0
                if time.perf_counter() - start_s < CALL_S:
                    at_once *= 2
            for block in blocks:
                block[-1] = block[-1][: done - begin]
        kept = [pair[done % 2] for pair in states]
        return done, kept, [b[0] if len(b) == 1 else np.concatenate(b) for b in blocks]


def _length(left: int, row_bytes: int) -> int:
    """Trips of one call. `row_bytes`: what is collected in a trip where nobody knows the last."""
    return min(left, max(1, BLOCK_BYTES // row_bytes)) if row_bytes else left


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What is collected: the number of the pointer to its place in a trip."""

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Run:
    """The pointers of one run: the entry's, then those to values that are none of the body's."""

    def __init__(
        self,
        session: NativeSession,
        slots: Mapping[str, int],
        made: Mapping[str, Port],
        fixed: Mapping[str, Array],
    ) -> None:
        self._pointers = session.pointers()
        self._made, self._fixed, self._taken = made, fixed, set[str]()
        self._copies: list[tuple[int, int, int]] = []
        self._swaps: list[tuple[int, int]] = []
        self._held: list[Array] = []
        self._array: Any = None
        self.slots = dict(slots)
        """Inputs, and other values that are given, by name."""
        for name, array in fixed.items():
            if name in slots:
                self.place(slots[name], array)
            else:
                self.slots[name] = self._new(array)

    def carry(self, name: str, then: str) -> tuple[Array, Array]:
        """Two places of a value, which the trips read from and write to by turns: at first it is
        in the first one."""
        begin = self._fixed[name]
        if then == name:
            return begin, begin
        pair = fresh_array(begin.shape, begin.dtype), fresh_array(begin.shape, begin.dtype)
        pair[0][...] = begin
        self.place(self.slots[name], pair[0])
        self._swaps.append((self.slots[name], self._source(then, pair[1])))
        return pair

    def collect(self, name: str) -> _Row:
        port = self._made.get(name)
        if port is not None:
            shape, kind = port.type.shape, _stored(port)
        else:
            shape, kind = self._fixed[name].shape, self._fixed[name].dtype
        return _Row(slot=self._source(name, fresh_array(shape, kind)), shape=shape, dtype=kind)

    def place_rest(self) -> None:
        """Outputs that nobody reads have a place, too."""
        for name, port in self._made.items():
            if name not in self._taken:
                self.place(port.base, fresh_array(port.type.shape, _stored(port)))

    def place(self, slot: int, array: Array) -> None:
        """Let a pointer be that to an array, which must live as long as the run."""
        self._held.append(array)
        (self._pointers if self._array is None else self._array)[slot] = address(array)

    def plan(self, moves: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
        """What happens behind a trip, as the native loop reads it. There are no new pointers from
        now on."""
        self._array = (ctypes.c_void_p * len(self._pointers))(*self._pointers)
        lists: tuple[Sequence[tuple[int, ...]], ...] = (self._copies, self._swaps, moves)
        words = [w for some in lists for w in (len(some), *itertools.chain(*some))]
        return np.array(words, np.int64)

    @property
    def pointer(self) -> int:
        return ctypes.addressof(self._array)

    def _source(self, name: str, into: Array) -> int:
        """The number of the pointer through which a trip's value comes into an array: the body's
        own, once; else one that it is copied to, behind the trip."""
        if name in self._made and name not in self._taken:
            self._taken.add(name)
            self.place(self._made[name].base, into)
            return self._made[name].base
        there = self._made[name].base if name in self._made else self.slots[name]
        slot = self._new(into)
        self._copies.append((there, slot, into.nbytes))
        return slot

    def _new(self, array: Array) -> int:
        self._held.append(array)
        self._pointers.append(address(array))
        return len(self._pointers) - 1


def _stored(port: Port) -> np.dtype[Any]:
    return np.dtype(stored_as(port.type.dtype))


@functools.lru_cache(maxsize=4)
def _library(target: Target) -> Library:
    return load_text(trips_text(SYMBOL), target)
