"""Sessions of a model with state: inputs that are outputs of the call before. In: a model, and
which output becomes which input. Out: calls that take and give everything else.

A state that a model can update where it lies has one place: of a cache, a call writes the new rows
only. Any other has two, which calls read from and write to by turns. So nothing is copied, and
nothing of it passes through the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from autotune import arguments
from autotune.errors import ClosedError, FeedError
from autotune.runtime.closing import Closing
from autotune.stored import stored_as
from autotune.types import Array


class StatefulModel(Protocol):
    """A model, of whatever kind."""

    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def outputs(self) -> Mapping[str, Any]: ...

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Iterable[str] | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...
    def updates(self, feeds: Mapping[str, Any]) -> Collection[tuple[str, str]]: ...


class StateSession(Closing):
    """One sequence of calls of a model, each of which goes on where the last one ended. Calls from
    several threads take turns; several sessions of a model may run side by side. As a context
    manager it is closed at the end. Closing it leaves the model open."""

    def __init__(
        self,
        model: StatefulModel,
        state: Mapping[str, str],
        initial: Mapping[str, Any] | None = None,
        *,
        places: bool = True,
    ) -> None:
        """`places`: whether the model writes results to arrays that it is given. Raises
        FeedError."""
        self._state = checked_state(model, state)
        self._model: StatefulModel | None = model
        self._places = places
        self._rest = [name for name in model.outputs if name not in self._state.values()]
        self._begin = {name: _first(model, name, initial or {}) for name in self._state}
        unknown = sorted(set(initial or ()) - self._state.keys())
        if unknown:
            raise FeedError(
                f"initial: {unknown[0]!r} is no state; states are {arguments.listed(self._state)}"
            )
        self._now: dict[str, Array] = {}
        self._spare: dict[str, Array] = {}
        self._lock = threading.RLock()  # a signal's handler may call in the middle of a call
        self.reset()

    @property
    def state(self) -> Mapping[str, Array]:
        """What the next call takes, by the names of the inputs: arrays to look at before it, which
        may change with it."""
        self._open()
        return MappingProxyType(self._now)

    def run(
        self, feeds: Mapping[str, Any] | None = None, outputs: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """One call: takes the inputs that are no state, gives the outputs that are none, or those
        named in `outputs`. Raises what the model's `run` does; the state is then what it was."""
        model, names = self._open(), self._state
        given = dict(feeds or {})
        twice = given.keys() & names.keys()
        if twice:
            raise FeedError(
                f"input {min(twice)}: it is kept by the session; leave it out, or reset"
            )
        asked = self._rest if outputs is None else list(outputs)
        with self._lock:
            made = self._called(model, given, None if outputs is None else asked)
            kept = names.values()
            return {name: made[name].copy() if name in kept else made[name] for name in asked}

    def _called(
        self, model: StatefulModel, given: dict[str, Any], asked: list[str] | None
    ) -> dict[str, Any]:
        """All outputs, or those asked for, and the state's; the state is what the call made."""
        names, feeds = self._state, given | self._now
        wanted = None if asked is None else dict.fromkeys([*asked, *names.values()])
        into = self._into(model, feeds) if self._places else None
        made = model.run(feeds, wanted, into)
        old, self._now = self._now, {name: made[then] for name, then in names.items()}
        if self._places:
            self._spare |= {n: array for n, array in old.items() if array is not self._now[n]}
        return made

    def _into(self, model: StatefulModel, feeds: dict[str, Any]) -> dict[str, Array]:
        """By output, where the state goes: over the old one if it may, else to the other place."""
        over, out = model.updates(feeds), {}
        for name, then in self._state.items():
            now = self._now[name]
            if (name, then) in over:
                out[then] = now
                continue
            if name not in self._spare:
                self._spare[name] = np.empty_like(now)
            out[then] = self._spare[name]
        return out

    def reset(self, initial: Mapping[str, Any] | None = None) -> None:
        """Begin again, with the states of the beginning or those in `initial`."""
        model = self._open()
        begin = self._begin | {n: _first(model, n, initial or {}) for n in initial or {}}
        with self._lock:
            self._now = {name: np.array(array, order="C") for name, array in begin.items()}
            self._spare = {}

    def close(self) -> None:
        """Give the memory of the state back."""
        self._model = None
        self._now, self._spare, self._begin = {}, {}, {}

    def _open(self) -> StatefulModel:
        if self._model is None:
            raise ClosedError("the session is closed; begin another with model.session(...)")
        return self._model


def checked_state(model: StatefulModel, state: Mapping[str, str]) -> dict[str, str]:
    """State by input, each from an output of its own. Raises FeedError."""
    named = arguments.by_name("state", state, "a dict of output by input", FeedError)
    pairs = {name: str(then) for name, then in named.items()}
    if not pairs:
        raise FeedError("state: expected at least one {'input': 'output'}, got none")
    for name, then in pairs.items():
        for what, given, known in (("input", name, model.inputs), ("output", then, model.outputs)):
            if given not in known:
                raise FeedError(
                    f"state: the model has no {what} {given!r}; {what}s are "
                    f"{arguments.listed(known)}{arguments.suggestion(given, known)}"
                )
    if len(set(pairs.values())) < len(pairs):
        raise FeedError("state: an output is named for two inputs; one state needs its own output")
    for name, then in pairs.items():
        takes, gives = model.inputs[name], model.outputs[then]
        if not _fits(takes, gives):
            raise FeedError(
                f"state: input {name!r} is {takes}, output {then!r} {gives}; expected the same"
            )
    return pairs


def _fits(takes: Any, gives: Any) -> bool:
    """Whether one may become the other, as far as is known before a run."""
    if not hasattr(takes, "dtype") or not hasattr(gives, "dtype"):
        return True
    if any(isinstance(dim, str) for dim in (*takes.shape, *gives.shape)):
        return bool(takes.dtype == gives.dtype)
    return bool(takes == gives)


def _first(model: StatefulModel, name: str, initial: Mapping[str, Any]) -> Array:
    """What a state is at the beginning: what the caller says, or else zeros."""
    if name in initial:
        return np.asarray(initial[name])
    kind = model.inputs[name]
    shape = getattr(kind, "shape", None)
    if shape is None or any(isinstance(dim, str) for dim in shape):
        raise FeedError(
            f"initial: the shape of state {name!r} is open; expected its first value, as "
            f"initial={{{name!r}: array}}"
        )
    return np.zeros(shape, stored_as(kind.dtype))
