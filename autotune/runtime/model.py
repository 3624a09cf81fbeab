"""Runs a compiled model. In: a ModelImage and named arrays. Out: named numpy arrays."""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autotune import arguments
from autotune.codegen.base import Library
from autotune.errors import FeedError
from autotune.graph.feeds import as_array, random_feeds
from autotune.memory import zeroed_block
from autotune.runtime.closing import Closing
from autotune.runtime.image import LinkedKernel, ModelImage, Port
from autotune.runtime.image_file import image_bytes, read_image, save
from autotune.runtime.native_session import SessionMaker
from autotune.runtime.pool import Pool, RunsSession, runs_at_once
from autotune.runtime.results import (
    Over,
    Writable,
    check_names,
    declared,
    places,
    wanted,
    whole_arrays,
)
from autotune.runtime.session import NOWHERE, AddressedSession, Session
from autotune.runtime.state import StateSession
from autotune.runtime.watched import WatchedWords
from autotune.stored import stored, stored_as
from autotune.types import SHORT_FLOATS, Array, TensorType

if TYPE_CHECKING:
    from autotune.graph.int8.accuracy import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One row of the per-kernel table: the median time of one call in its place in the model."""

    kernel: LinkedKernel
    time_s: float

    @property
    def flops_per_s(self) -> float:
        return self.kernel.flops / self.time_s if self.time_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """`latency_s`: one value per whole run; `kernels` in order of execution."""

    latency_s: tuple[float, ...]
    kernels: tuple[KernelTime, ...] = field(repr=False)

    @property
    def median_s(self) -> float:
        return statistics.median(self.latency_s)

    @property
    def flops(self) -> int:
        return sum(k.kernel.flops for k in self.kernels)


class CompiledModel(Closing):
    """A model loaded for running. Safe to call from several threads.

    Runs go on side by side, each in an arena of its own: four for each core of the process, or, of
    a model for several threads, as many as there are cores for; further ones wait their turn. An
    arena is made when runs first overlap, and kept; weights are shared. A device runs one after
    the other.

    `notes`: what the compiler has to say about it. `quantization`: of a model compiled for int8,
    how far its outputs are from float32. As a context manager it is closed at the end. `copy.copy`
    gives a model with arenas of its own (the weights are shared), which is closed by itself;
    `copy.deepcopy` shares nothing. `pickle` keeps the bytes that `save` writes; unpickling, as
    always, runs what the pickle says: take pickles from nobody, `autotune.load` reads files.
    """

    def __init__(
        self,
        image: ModelImage,
        library: Library | None = None,
        notes: tuple[str, ...] = (),
        sessions: Callable[[], Session] | None = None,
    ) -> None:
        """`library`: the image's objects where they are loaded already; otherwise the first run
        loads them, so that a model for another machine can be compiled and saved here. `notes`:
        what the compiler has to say about it. `sessions`: what makes sessions, where the image
        does not hold all that they need."""
        self._image: ModelImage | None = image
        self._shown = image.summary
        self.notes = notes
        limit = functools.partial(runs_at_once, image.target)
        self._pool = Pool(sessions or SessionMaker(image, library), limit, self._shown)
        self.quantization: Quantization | None = None
        """How far a model compiled for int8 is from float32; the compiler sets it."""
        self._wanted = {
            p.name: (p, p.type.shape, np.dtype(stored_as(p.type.dtype))) for p in image.inputs
        }
        self._updates = frozenset(image.updates)
        self._ports, self._names = image.outputs, [p.name for p in image.outputs]
        self._declared = any(p.declared for p in image.outputs)
        self._places, self._over = places(image.outputs), _over(image)
        self._inputs = MappingProxyType({p.name: p.public for p in image.inputs})
        self._outputs = MappingProxyType({p.name: p.public for p in image.outputs})

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Declared element type and shape of every input, by name; cannot be changed."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """Declared element type and shape of every output, by name; cannot be changed."""
        return self._outputs

    def updates(self, feeds: Mapping[str, npt.ArrayLike]) -> Collection[tuple[str, str]]:  # noqa: ARG002
        """(input, output), by name, that may be one array, so that a state is updated in place:
        for whatever feeds."""
        return self._updates

    @property
    def image(self) -> ModelImage:
        """The model as plain data. Raises ClosedError."""
        if self._image is None:
            raise self._pool.refusal()
        return self._image

    def run(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        outputs: Iterable[str] | None = None,
        out: Mapping[str, Writable] | None = None,
    ) -> dict[str, Array]:
        """One inference: the outputs by name.

        `feeds`: per model input an array of exactly its shape and element type. Other byte orders
        and arrays that are not contiguous are copied. Numbers and nested lists of them are
        converted where numpy casts them as the same kind and they fit: integers to floats, but no
        floats to integers. float16 is taken for float32.

        Arrays may be anything with the buffer protocol, `__array__` or DLPack on the host (tensors
        of PyTorch, memoryviews). Those of the right type that are contiguous and begin at a
        multiple of their element's size, as all fresh ones do, are read where they lie; no larger
        alignment is asked for, though vectors across cache lines cost a little below 64 bytes.

        `outputs`: the names of those to return, in this order; None: all. `out`: where to write
        outputs to, by name: arrays, writable buffers or DLPack tensors of exactly their shape and
        type. Those are returned in place of fresh arrays, and the model writes to them without a
        copy where they are contiguous and share no memory with an input, or are the very array of
        an input that `updates` names beside the output.

        Raises FeedError, ClosedError, and ArtifactError where the model is built for another CPU.
        """
        if self._image is None:
            raise self._pool.refusal()
        arrays = self.checked(feeds)
        into = NOWHERE if out is None else whole_arrays(self._places, out, arrays, self._over)
        if outputs is not None or into is None:
            asked = wanted(self._ports, outputs, out)
            return asked.delivered(
                self._run(arrays, asked.numbers, asked.direct(arrays, self._over))
            )
        results = self._run(arrays, None, into)
        if self._declared:
            results = list(map(declared, self._ports, results))
        for number, array in into.items():
            if results[number] is not array:
                array[...], results[number] = results[number], array
        return dict(zip(self._names, results, strict=True))

    def by_address(self) -> bool:
        """Whether `run_at` can run the model. Loads it."""
        slot = self._pool.take()
        self._pool.give(slot)
        return isinstance(slot.session, AddressedSession)

    def by_words(self) -> bool:
        """Whether `run_through` can run the model. Loads it."""
        slot = self._pool.take()
        self._pool.give(slot)
        return isinstance(slot.session, AddressedSession) and slot.session.by_words

    def run_at(self, addresses: Sequence[int], words: WatchedWords | None = None) -> bool:
        """One inference on memory of the caller's, for models that are `by_address`: addresses of
        the inputs in order, then of the outputs, all dense and apart from one another. Nothing is
        checked but `words`: where those have changed nothing is run, and the result is False.
        Raises ClosedError."""
        pool = self._pool
        slot = pool.take()
        try:
            return slot.session.run_at(addresses, words)  # type: ignore[attr-defined, no-any-return]
        finally:
            pool.give(slot)

    @property
    def run_through(self) -> Callable[[RunsSession, object, object], bool]:
        """What `Pool.through` does with a session of this model, where it is `by_words`."""
        return self._pool.through

    def update(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        state: Mapping[str, str],
        outputs: Iterable[str],
    ) -> dict[str, Array]:
        """One inference that leaves outputs where inputs were: `state` says by input, whose array
        is written, which output. For models that read such an input only where they write it.
        Gives the `outputs`. Raises what `run` does."""
        if self._image is None:
            raise self._pool.refusal()
        arrays, asked = self.checked(feeds), list(outputs)
        kept = {self._names.index(then): feeds[name] for name, then in state.items()}
        places = dict(zip(self._wanted, arrays, strict=True))
        into = {number: places[name] for number, name in zip(kept, state, strict=True)}
        numbers = [self._names.index(name) for name in asked]
        results = self._run(arrays, [*numbers, *kept], into)
        for result, array in zip(results[len(asked) :], kept.values(), strict=True):
            if result is not array and isinstance(array, np.ndarray):
                array[...] = result
        return {
            name: declared(self._ports[number], result)
            for name, number, result in zip(asked, numbers, results, strict=False)
        }

    def checked(self, feeds: Mapping[str, npt.ArrayLike]) -> list[Array]:
        """The inputs in order, as `run` takes them. Raises FeedError. After a large model the
        caches hold nothing of Python's, and every function that is called comes from memory: what
        is as it should be takes the short way."""
        if type(feeds) is not dict or feeds.keys() != self._wanted.keys():
            check_names(feeds, self._wanted)
        out = []
        for name, (port, shape, kind) in self._wanted.items():
            array = feeds[name]
            if (
                type(array) is np.ndarray
                and array.shape == shape
                and array.dtype is kind
                and (flags := array.flags).c_contiguous
                and flags.aligned
            ):
                out.append(array)
            else:
                out.append(_check_array(port, array))
        return out

    def session(
        self, state: Mapping[str, str], initial: Mapping[str, npt.ArrayLike] | None = None
    ) -> StateSession:
        """Calls in which the inputs of `state` are kept: each is, by the name of an output, what
        the call before made of it, in memory of the session's; at the beginning `initial`, or
        zeros. Raises FeedError, ClosedError."""
        if self._image is None:
            raise self._pool.refusal()
        return StateSession(self, state, initial)

    def bench(
        self,
        repeats: int = 20,
        *,
        feeds: Mapping[str, npt.ArrayLike] | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> ModelTimes:
        """Time `repeats` whole runs, then as many passes kernel by kernel. Kernels are timed where
        they stand in the model, so that they see its caches and data. Default feeds are random,
        drawn from `seed`. `clock` gives seconds. Raises what `run` does, and ConfigError."""
        arguments.whole("repeats", repeats, 1)
        arguments.whole("seed", seed)
        arguments.function("clock", clock)
        image = self.image
        arrays = self.checked(random_feeds(self.inputs, seed) if feeds is None else feeds)
        slot = self._pool.take()
        try:
            latencies, per_kernel = slot.session.bench(arrays, repeats, clock)
        finally:
            self._pool.give(slot)
        rows = zip(image.kernels, per_kernel, strict=True)
        return ModelTimes(
            latency_s=latencies,
            kernels=tuple(KernelTime(kernel=k, time_s=statistics.median(t)) for k, t in rows),
        )

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the model as one file, which appears when it is whole, or to a file that is open
        for writing bytes; `autotune.load` reads it back. Raises ArtifactError, ClosedError."""
        save(self.image, path)

    def close(self) -> None:
        """Give the model's memory back, once a run under way in another thread has ended. Whoever
        uses the model later gets a ClosedError; closing it again does nothing."""
        self._image = None
        self._pool.close()

    def own_session(self) -> Session:
        """A session beside the pool, in which the caller runs the model by itself. Raises what the
        first run does."""
        return self._pool.another()

    def __repr__(self) -> str:
        return f"<CompiledModel {self._shown}{', closed' if self._image is None else ''}>"

    def __copy__(self) -> CompiledModel:
        return self._like(self.image)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModel:
        constants = zeroed_block(self.image.constants.nbytes)
        constants[:] = self.image.constants
        return self._like(dataclasses.replace(self.image, constants=constants))

    def __reduce__(self) -> tuple[Callable[..., CompiledModel], tuple[Any, ...]]:
        return restored, (image_bytes(self.image), self.notes, self.quantization)

    # ------------------------------------------------------------------------------- internals

    def _like(self, image: ModelImage) -> CompiledModel:
        """A model of that image with what is known of this one."""
        other = CompiledModel(image, notes=self.notes)
        other.quantization = self.quantization
        return other

    def _run(
        self, arrays: Sequence[Array], numbers: Sequence[int] | None, into: Mapping[int, Array]
    ) -> list[Array]:
        """See `Session.run`; in a session that no other run is in."""
        pool = self._pool
        slot = pool.take()
        try:
            return slot.session.run(arrays, numbers, into)
        finally:
            pool.give(slot)


def _over(image: ModelImage) -> Over:
    """The inputs that each output may lie over, by their numbers."""
    inputs, outputs = ([p.name for p in side] for side in (image.inputs, image.outputs))
    out: dict[int, frozenset[int]] = {}
    for name, then in image.updates:
        number = outputs.index(then)
        out[number] = out.get(number, frozenset()) | {inputs.index(name)}
    return out


def restored(
    data: bytes, notes: tuple[str, ...], quantization: Quantization | None
) -> CompiledModel:
    """What a pickle of a model calls: the model of an artifact's bytes, and what was known of it.
    Raises ArtifactError."""
    model = CompiledModel(read_image(data), notes=notes)
    model.quantization = quantization
    return model


restored.__module__ = "autotune.runtime.artifact"  # by this name pickles know it


def _check_array(port: Port, given: npt.ArrayLike) -> Array:
    array = as_array(given, port.type.dtype, f"input {port.name}")
    if array.shape != port.type.shape:
        raise FeedError(
            f"input {port.name}: expected shape {list(port.type.shape)}, got {list(array.shape)}; "
            "reshape it, or compile the model for that shape"
        )
    if array.dtype.name == port.declared and port.type.dtype not in SHORT_FLOATS:
        array = array.astype(port.type.dtype)
    if array.dtype == np.float16 and port.type.dtype in ("float32", "bfloat16"):
        array = array.astype(np.float32)  # what models of 16-bit floats are given
    if port.type.dtype in SHORT_FLOATS:
        return _short_array(port, array)
    if array.dtype != np.dtype(port.type.dtype):
        raise FeedError(
            f"input {port.name}: expected {port.type.dtype}, got {array.dtype}; "
            f"convert it with .astype('{port.type.dtype}')"
        )
    return np.require(array, requirements=["C", "A"])


def _short_array(port: Port, array: Array) -> Array:
    """What lies in memory: float32 values are rounded, bfloat16 (which other packages bring to
    numpy) and its bits in uint16 are taken as they are."""
    kind = port.type.dtype
    if kind == "bfloat16" and array.dtype.itemsize == 2 and array.dtype.kind not in "if":
        array = array.view(np.uint16)
    elif array.dtype.name not in ("float32", kind):
        raise FeedError(
            f"input {port.name}: expected {kind} or float32, got {array.dtype}; "
            "convert it with .astype('float32')"
        )
    return np.require(stored(array, kind), requirements=["C", "A"])
