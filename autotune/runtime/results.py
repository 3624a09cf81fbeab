"""The names that a run is given: of its inputs, of the outputs it returns, and of where these go.

In: what the caller of `run` says. Out: a checked `Wanted`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune import arguments
from autotune.errors import ArtifactError, FeedError
from autotune.runtime.image import Port
from autotune.stored import stored_as
from autotune.types import NARROW, Array

Writable = Any
"""A numpy array, a writable buffer (bytearray, memoryview), or a DLPack tensor on the host."""
Place = tuple[int, tuple[int, ...], np.dtype[Any]]
"""An output: its number, shape and element type."""
Over = Mapping[int, frozenset[int]]
"""By an output's number, the inputs whose memory it may be written over, by theirs."""
NO_INPUT: frozenset[int] = frozenset()
OVERLAP_WORK = 100_000
"""Steps after which two arrays are taken to share memory, whether they do or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Some outputs of a model, in the order of the caller."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    """The numbers of the model's output ports that are given."""
    ports: Sequence[Port]
    """The ports of these numbers, in the same order."""
    given: Mapping[int, Array]
    """The caller's memory as arrays, by number."""
    returned: Mapping[int, Writable]
    """The same as the caller gave it."""

    def direct(self, inputs: Sequence[Array], over: Over) -> dict[int, Array]:
        """Arrays that the model itself may write. An input would change while it is read, but for
        those that outputs may lie `over`."""
        return {
            number: array
            for number, array in self.given.items()
            if not self.ports[self.numbers.index(number)].declared
            and array.flags.carray
            and array.dtype.isnative
            and _is_apart(array, inputs, over.get(number, NO_INPUT))
        }

    def delivered(self, results: Sequence[Array]) -> dict[str, Array]:
        """The results by name, those for the caller's arrays copied there."""
        out: dict[str, Array] = {}
        found = zip(self.names, self.numbers, self.ports, results, strict=True)
        for name, number, port, result in found:
            given = self.given.get(number)
            if given is not None and given is not result:
                given[...] = declared(port, result)
            out[name] = declared(port, result) if given is None else self.returned[number]
        return out


def wanted(
    ports: Sequence[Port], outputs: Iterable[str] | None, out: Mapping[str, Writable] | None
) -> Wanted:
    """Outputs by name (None: all), of which those in `out` go to the arrays there. Raises
    FeedError."""
    known = {port.name: number for number, port in enumerate(ports)}
    names = tuple(known) if outputs is None else _selected(outputs, known)
    given: dict[int, Array] = {}
    returned: dict[int, Writable] = {}
    for name, array in ({} if out is None else _arrays(out)).items():
        if name not in names:
            reason = "is not among the outputs asked for" if name in known else _unknown(known)
            raise FeedError(f"out: {name!r} {reason}{arguments.suggestion(name, known)}")
        _check_given(ports[known[name]], array)
        given[known[name]], returned[known[name]] = array, (out or {})[name]
    _check_apart(ports, given)
    numbers = tuple(known[name] for name in names)
    return Wanted(
        names=names,
        numbers=numbers,
        ports=tuple(ports[n] for n in numbers),
        given=given,
        returned=returned,
    )


def places(ports: Sequence[Port]) -> dict[str, Place]:
    """Where outputs are written in the element type that they have."""
    return {
        port.name: (number, port.type.shape, np.dtype(stored_as(port.type.dtype)))
        for number, port in enumerate(ports)
        if not port.declared
    }


def whole_arrays(
    known: Mapping[str, Place], out: object, inputs: Sequence[Array], over: Over
) -> dict[int, Array] | None:
    """The short way for arrays that are as they should be: by number, those that the model can
    write as they are. None where it takes `wanted` to say what is to be done, or what is wrong."""
    if type(out) is not dict:
        return None
    found: dict[int, Array] = {}
    for name, array in out.items():
        place = known.get(name)
        if place is None or type(array) is not np.ndarray:
            return None
        number, shape, kind = place
        if array.shape != shape or array.dtype is not kind or not array.flags.carray:
            return None
        if not _is_apart(array, inputs, over.get(number, NO_INPUT)):
            return None
        for other in found.values():
            if np.may_share_memory(array, other):
                return None
        found[number] = array
    return found


def _is_apart(array: Array, inputs: Sequence[Array], over: frozenset[int]) -> bool:
    """Whether an output may be written there while these inputs are read; `over` are the numbers
    of those that may be the same array."""
    for number, other in enumerate(inputs):
        if np.may_share_memory(array, other) and not (array is other and number in over):
            return False
    return True


def declared(port: Port, result: Array) -> Array:
    """The output in the element type that the model says it has, if computed in another."""
    return result.astype(_kind(port), copy=False) if port.declared else result


def float_type(name: str) -> np.dtype[Any]:
    """numpy's type of that name. Those of NARROW are a package's, which comes with onnx;
    ArtifactError where it is missing."""
    if name not in NARROW and name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes  # boards run models without it
    except ImportError:
        raise ArtifactError(
            f"the model's outputs are {name}, which numpy does not have; install ml_dtypes"
        ) from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _kind(port: Port) -> np.dtype[Any]:
    """The numpy type of the arrays that a run gives."""
    return float_type(port.declared) if port.declared else np.dtype(stored_as(port.type.dtype))


def check_names(feeds: object, known: Mapping[str, object]) -> None:
    """Raise FeedError unless there is an array for each of a model's inputs, and no other."""
    if not isinstance(feeds, Mapping):
        found = type(feeds).__name__
        raise FeedError(f"expected a dict of arrays by input name, got {found}")
    given = arguments.by_name("feeds", feeds, "a dict of arrays by input name", FeedError)
    odd = sorted(given.keys() - known.keys())
    if not odd and len(given) == len(known):
        return
    missing = [name for name in known if name not in given]
    hints = (arguments.suggestion(name, missing) for name in odd)
    raise FeedError(
        f"expected inputs {arguments.listed(known)}; got {arguments.listed(sorted(given))}"
        f"{next(filter(None, hints), '; give each by its name')}"
    )


def _selected(outputs: Iterable[str], known: Mapping[str, int]) -> tuple[str, ...]:
    what = "a list of output names"
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise FeedError(f"outputs must be {what}, got {arguments.described(outputs)}")
    names = tuple(arguments.text("every one of outputs", n, "a name", FeedError) for n in outputs)
    for name in names:
        if name not in known:
            raise FeedError(
                f"outputs: {name!r} {_unknown(known)}{arguments.suggestion(name, known)}"
            )
        if names.count(name) > 1:
            raise FeedError(f"outputs: {name!r} is named twice; name it once")
    return names


def _arrays(out: Mapping[str, Writable]) -> dict[str, Array]:
    """The caller's memory as arrays, never copies of it."""
    named = arguments.by_name("out", out, "a dict by output name", FeedError)
    return {name: _array_in(name, given) for name, given in named.items()}


def _array_in(name: str, given: Writable) -> Array:
    if isinstance(given, np.ndarray) and not isinstance(given, np.ma.MaskedArray):
        return given
    try:
        if isinstance(given, np.ma.MaskedArray):
            raise TypeError
        if hasattr(given, "__dlpack__"):
            return np.from_dlpack(given)
        return np.asarray(memoryview(given))
    except (TypeError, ValueError, RuntimeError, BufferError):
        kind = arguments.described(given)
        raise FeedError(
            f"out: {name!r} must be a numpy array to write to, or a writable buffer or DLPack "
            f"tensor in this machine's memory, got {kind}"
        ) from None


def _unknown(known: Iterable[str]) -> str:
    return f"is no output of the model, which has {arguments.listed(known)}"


def _check_given(port: Port, array: Array) -> None:
    kind, what = _kind(port), f"out: {port.name!r}"
    if array.shape != port.type.shape:
        raise FeedError(
            f"{what} must have shape {list(port.type.shape)}, got {list(array.shape)}; make it "
            f"with numpy.empty({port.type.shape}, '{kind}')"
        )
    if array.dtype.newbyteorder("=") != kind:
        raise FeedError(
            f"{what} must be an array of {kind}, got {array.dtype}; make it with "
            f"numpy.empty({port.type.shape}, '{kind}')"
        )
    if not array.flags.writeable:
        raise FeedError(f"{what} is read-only; give an array that can be written")


def _check_apart(ports: Sequence[Port], given: Mapping[int, Array]) -> None:
    for (one, first), (other, second) in itertools.combinations(given.items(), 2):
        if _overlap(first, second):
            raise FeedError(
                f"out: {ports[one].name!r} and {ports[other].name!r} lie in the same memory; "
                "give each an array of its own"
            )


def _overlap(first: Array, second: Array) -> bool:
    try:
        return np.shares_memory(first, second, max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
