"""Sessions of a model whose state grows with every call. In: what makes the model for a capacity.
Out: calls that take and give everything but the state.

A state lies in a block of some capacity, of which a part is filled; new rows go behind it. When
the block is full, the model for one of twice the capacity is made, and the state moves once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from autotune import arguments
from autotune.errors import ClosedError, FeedError
from autotune.runtime.closing import Closing
from autotune.runtime.model import CompiledModel
from autotune.size_ranges import SizedType
from autotune.types import Array

LEAST_CAPACITY = 128
"""Rows of the first block, where the caller asks for no more."""
STEPS = (64, 8, 1)
"""Rows that a call adds at a time: longer ones are made of several, the last of these shorter."""


class Grows(Protocol):
    """A model whose states grow."""

    @property
    def inputs(self) -> Mapping[str, SizedType]: ...
    @property
    def outputs(self) -> Mapping[str, SizedType]: ...
    @property
    def axes(self) -> Mapping[str, int]:
        """By state, the dimension that grows."""
        ...

    @property
    def step(self) -> frozenset[str]:
        """Symbols of inputs for the rows that a call adds."""
        ...

    @property
    def total(self) -> frozenset[str]:
        """Symbols of inputs for the rows that are filled then."""
        ...

    def at(self, sizes: Mapping[str, int], capacity: int, step: int) -> CompiledModel:
        """Takes also how many rows are filled, by the name `length`."""
        ...

    @property
    def length(self) -> str: ...

    def understood(self) -> bool:
        """Whether it can do so."""
        ...


class GrowingSession(Closing):
    """One sequence of calls of a model, each of which adds rows to its states. Calls from several
    threads take turns. As a context manager it is closed at the end; the model stays open."""

    def __init__(
        self,
        model: Grows,
        state: Mapping[str, str],
        initial: Mapping[str, Any] | None = None,
        capacity: int | None = None,
    ) -> None:
        """`initial`: what is filled at the beginning, by state: all of them or none. `capacity`:
        rows that the first block has. Raises FeedError, ConfigError."""
        self._model: Grows | None = model
        self._state = dict(state)
        self._least = arguments.whole("capacity", capacity or LEAST_CAPACITY, 2)
        self._capacity = self._least
        self._begin = {name: np.array(array) for name, array in (initial or {}).items()}
        self._rest = [name for name in model.outputs if name not in state.values()]
        self._sizes: dict[str, int] = {}
        self._now: dict[str, Array] = {}
        self._length = 0
        self._lock = threading.RLock()  # a signal's handler may call in the middle of a call
        self.reset()

    @property
    def length(self) -> int:
        """Rows that are filled."""
        return self._length

    @property
    def capacity(self) -> int:
        """Rows that there is room for before the state moves."""
        return self._capacity

    @property
    def state(self) -> Mapping[str, Array]:
        """What is filled, by the names of the inputs: arrays to look at before the next call."""
        self._open()
        return MappingProxyType({n: self._filled(n, array) for n, array in self._now.items()})

    def run(
        self, feeds: Mapping[str, Any], outputs: Iterable[str] | None = None
    ) -> dict[str, Array]:
        """One call: takes the inputs that are no state, gives the outputs that are none, or those
        named in `outputs`. Raises FeedError, and what compiling does the first time that a
        capacity is met; the session is then what it was."""
        model = self._open()
        given = {name: np.asarray(array) for name, array in feeds.items()}
        asked = self._rest if outputs is None else list(outputs)
        unknown = [name for name in asked if name not in self._rest]
        if unknown:
            raise FeedError(f"outputs: {unknown[0]!r} is none, or a state; see session.state")
        with self._lock:
            return self._called(model, given, asked)

    def _called(self, model: Grows, given: dict[str, Array], asked: list[str]) -> dict[str, Array]:
        """See `run`; with the lock."""
        step = self._checked(model, given)
        self._reserve(model, self._length + step)
        first, parts = self._length, list[tuple[int, dict[str, Array]]]()
        try:
            for rows in _steps(step, bool(model.step)):
                parts.append((rows, self._add(model, given, asked, first, rows)))
        except BaseException:
            self._length = first
            raise
        return {name: self._joined(model, name, parts) for name in asked}

    def reset(self, initial: Mapping[str, Any] | None = None) -> None:
        """Begin again, as at the beginning or with these rows filled. Blocks are small again, for
        the sake of speed; what was compiled is kept."""
        model = self._open()
        begin = self._begin if initial is None else {n: np.array(a) for n, a in initial.items()}
        if begin and begin.keys() != self._state.keys():
            raise FeedError(
                f"initial: expected all of {arguments.listed(self._state)}, or none; got "
                f"{arguments.listed(begin)}"
            )
        lengths = {a.shape[model.axes[n]] for n, a in begin.items() if n in model.axes}
        if len(lengths) > 1:
            raise FeedError(f"initial: expected states of one length, got {sorted(lengths)}")
        with self._lock:
            self._begin_with(model, begin, lengths)

    def _begin_with(self, model: Grows, begin: dict[str, Array], lengths: set[int]) -> None:
        """See `reset`; with the lock."""
        self._length, self._now, self._capacity = 0, {}, self._least
        if not begin:
            return
        for name, array in begin.items():
            _bind(name, model.inputs[name], array, self._sizes)
        self._reserve(model, *lengths)
        self._length = next(iter(lengths))
        for name, array in begin.items():
            self._filled(name, self._now[name])[...] = array

    def close(self) -> None:
        """Give the memory of the state back."""
        self._model = None
        self._now, self._begin = {}, {}

    def _open(self) -> Grows:
        if self._model is None:
            raise ClosedError("the session is closed; begin another with model.session(...)")
        return self._model

    def _filled(self, name: str, array: Array) -> Array:
        axis = self._open().axes.get(name)
        if axis is None:
            return array
        return array[(slice(None),) * axis + (slice(self._length),)]

    def _checked(self, model: Grows, given: Mapping[str, Array]) -> int:
        """Rows that a call adds. Raises FeedError."""
        wanted = [name for name in model.inputs if name not in self._state]
        for name in given.keys() ^ set(wanted):
            said = "is kept by the session" if name in self._state else "is no input of the model"
            raise FeedError(
                f"input {name}: it is missing; give {arguments.listed(wanted)}"
                if name in wanted
                else f"input {name}: it {said}; give {arguments.listed(wanted)}"
            )
        sizes = {s: n for s, n in self._sizes.items() if s not in model.step | model.total}
        for name in wanted:
            _bind(name, model.inputs[name], given[name], sizes)
        steps = {sizes[symbol] for symbol in model.step}
        if len(steps) > 1:
            raise FeedError(f"inputs add {sorted(steps)} rows; expected one number")
        step = next(iter(steps), 1)
        for symbol in model.total:
            if sizes[symbol] != self._length + step:
                raise FeedError(
                    f"size {symbol} is {sizes[symbol]}; expected {self._length + step}: "
                    f"{self._length} rows are filled, and {step} come to them"
                )
        self._sizes = {s: n for s, n in sizes.items() if s not in model.step | model.total}
        return step

    def _reserve(self, model: Grows, rows: int) -> None:
        """Have room for so many rows."""
        old = self._now
        if old and rows <= self._capacity:
            return
        while self._capacity < rows:
            self._capacity *= 2
        kinds = model.at(self._sizes, self._capacity, 1).inputs
        new = {name: np.zeros(kinds[name].shape, kinds[name].dtype) for name in self._state}
        for name, array in old.items():
            self._filled(name, new[name])[...] = self._filled(name, array)
        self._now = new

    def _add(
        self, model: Grows, given: Mapping[str, Array], asked: list[str], first: int, rows: int
    ) -> dict[str, Array]:
        """The next `rows` rows of a call that began with `first`."""
        compiled = model.at(self._sizes, self._capacity, rows)
        begin = self._length - first
        feeds: dict[str, Array] = {model.length: np.array([self._length], np.int64), **self._now}
        for name, array in given.items():
            part, fits = array, compiled.inputs[name].shape
            for axis, dim in enumerate(model.inputs[name].shape):
                if dim in model.step:
                    part = part[(slice(None),) * axis + (slice(begin, begin + rows),)]
                elif dim in model.total:
                    more = np.zeros(part.ndim, int)
                    more[axis] = fits[axis] - part.shape[axis]
                    part = np.pad(part, [(0, int(n)) for n in more])
            feeds[name] = part
        made = compiled.update(feeds, self._state, asked)
        self._length += rows
        return made

    def _joined(self, model: Grows, name: str, parts: list[tuple[int, dict[str, Array]]]) -> Array:
        """An output of a call that was made in parts: rows one behind the other; of what has
        none, the last."""
        last = parts[-1][1][name]
        if len(parts) == 1:
            return last
        shapes = {rows: made[name].shape for rows, made in parts}
        if len(shapes) == 1:
            other = STEPS[-2] if STEPS[-1] in shapes else STEPS[-1]
            shapes[other] = model.at(self._sizes, self._capacity, other).outputs[name].shape
        short, long, *_ = shapes.values()
        axes = [axis for axis, (i, j) in enumerate(zip(short, long, strict=True)) if i != j]
        return np.concatenate([made[name] for _, made in parts], axes[0]) if axes else last


def _steps(rows: int, several: bool) -> list[int]:
    """A call's rows in parts for which there are models."""
    out: list[int] = []
    for step in STEPS if several else (1,):
        count, rows = divmod(rows, step)
        out += [step] * count
    return out


def _bind(name: str, kind: SizedType, array: Array, sizes: dict[str, int]) -> None:
    """Read a symbol's size off an array. Raises FeedError."""
    fits = array.ndim == len(kind.shape)
    for dim, extent in zip(kind.shape, array.shape, strict=False):
        fits = fits and (sizes.setdefault(dim, extent) if isinstance(dim, str) else dim) == extent
    if not fits:
        raise FeedError(f"input {name}: expected shape {kind}, got {list(array.shape)}")
