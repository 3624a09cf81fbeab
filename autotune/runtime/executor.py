"""Runs a compiled model. In: a ModelImage and named numpy arrays. Out: named numpy arrays.

A run is one native call: the entry executes every kernel in one parallel region over one arena.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from autotune.codegen.base import DEVICE_KINDS, Library
from autotune.errors import ConfigError, FeedError
from autotune.graph.feeds import random_feeds
from autotune.memory import zeroed_block
from autotune.program.packing import stored, stored_as
from autotune.runtime.host import check_host
from autotune.runtime.image import ENTRY_SYMBOL, FIRST_INPUT, Kernel, ModelImage, Port
from autotune.types import SHORT_FLOATS, Array, TensorType

if TYPE_CHECKING:
    from autotune.graph.int8.accuracy import Quantization

_Pointers = ctypes.Array[ctypes.c_void_p]
_Buffer = tuple[tuple[int, ...], np.dtype[Any], Port | None]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One row of the per-kernel table: the median time of one call in its place in the model."""

    kernel: Kernel
    time_s: float

    @property
    def flops_per_s(self) -> float:
        return self.kernel.flops / self.time_s if self.time_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """`latency_s`: one value per whole run; `kernels` in order of execution."""

    latency_s: tuple[float, ...]
    kernels: tuple[KernelTime, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.latency_s)

    @property
    def flops(self) -> int:
        return sum(k.kernel.flops for k in self.kernels)


class Session(Protocol):
    """A model in the memory of what runs it."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One inference: a fresh array per output."""
        ...

    def bench(
        self, inputs: Sequence[Array], repeats: int, clock: Callable[[], float]
    ) -> tuple[tuple[float, ...], list[list[float]]]:
        """Seconds of whole runs, and per kernel call of `repeats` calls in its place."""
        ...


class CompiledModel:
    """A model loaded for running. Safe to call from several threads; runs take turns."""

    def __init__(
        self, image: ModelImage, library: Library | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        """`library`: the image's objects where they are loaded already; otherwise the first run
        loads them, so that a model for another machine can be compiled and saved here. `notes`:
        what the compiler has to say about it."""
        self.image = image
        self.notes = notes
        self._loaded: Session | None = _NativeSession(image, library) if library else None
        self.quantization: Quantization | None = None
        """How far a model compiled for int8 is from float32; the compiler sets it."""
        self._lock = threading.Lock()
        self._wanted = {
            p.name: (p, p.type.shape, np.dtype(stored_as(p.type.dtype))) for p in image.inputs
        }
        self._names = [p.name for p in image.outputs]

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {p.name: p.type for p in self.image.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {p.name: p.type for p in self.image.outputs}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One inference. `feeds`: an array per model input, of exactly its shape and type; arrays
        that are not contiguous are copied. Returns fresh arrays. Raises FeedError, and
        ArtifactError where the model is built for another CPU."""
        arrays = self._check(feeds)
        with self._lock:
            outputs = self._load().run(arrays)
        return dict(zip(self._names, outputs, strict=True))

    def bench(
        self,
        repeats: int = 20,
        *,
        feeds: Mapping[str, Array] | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> ModelTimes:
        """Time `repeats` whole runs, then as many passes kernel by kernel. Kernels are timed where
        they stand in the model, so that they see its caches and data. Default feeds are random."""
        if repeats < 1:
            raise ConfigError(f"repeats must be at least 1, got {repeats}")
        arrays = self._check(random_feeds(self.inputs, seed) if feeds is None else feeds)
        with self._lock:
            latencies, per_kernel = self._load().bench(arrays, repeats, clock)
        rows = zip(self.image.kernels, per_kernel, strict=True)
        return ModelTimes(
            latency_s=latencies,
            kernels=tuple(KernelTime(kernel=k, time_s=statistics.median(t)) for k, t in rows),
        )

    def save(self, path: str | Path) -> None:
        """Write the model as one file; `autotune.runtime.load` reads it back."""
        from autotune.runtime.artifact import save  # artifact imports this module

        save(self.image, path)

    # ------------------------------------------------------------------------------- internals

    def _load(self) -> Session:
        """The image in memory, loaded by the first call."""
        if self._loaded is None:
            target = self.image.target
            check_host(target, f"model {self.image.name}")
            if target.kind in DEVICE_KINDS:
                from autotune.measure.devices import open_device  # only where there is one
                from autotune.runtime.device_executor import DeviceSession

                self._loaded = DeviceSession(self.image, open_device(target))
            else:
                from autotune.codegen.loader import load  # a model only saved needs no code

                self._loaded = _NativeSession(self.image, load(self.image.objects, target))
        return self._loaded

    def _check(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The inputs in order. After a large model the caches hold nothing of Python's, and every
        function that is called comes from memory: what is as it should be takes the short way."""
        try:
            fits = feeds.keys() == self._wanted.keys()
        except AttributeError:
            found = type(feeds).__name__
            raise FeedError(f"expected a dict of arrays by input name, got {found}") from None
        if not fits:
            got = ", ".join(sorted(feeds)) or "none"
            raise FeedError(
                f"expected inputs {', '.join(self._wanted)}; got {got}; give each by its name"
            )
        out = []
        for name, (port, shape, kind) in self._wanted.items():
            array = feeds[name]
            plain = type(array) is np.ndarray and array.shape == shape and array.dtype is kind
            out.append(array if plain and array.flags.carray else _check_array(port, array))
        return out


class _NativeSession:
    """An image in memory: its code, its blocks, and the entry function."""

    def __init__(self, image: ModelImage, library: Library) -> None:
        self._image, self._library = image, library
        self._entry = _ENTRY(library.address(ENTRY_SYMBOL))
        arena, workspace = zeroed_block(image.arena_bytes), zeroed_block(image.workspace_bytes)
        self._blocks: tuple[Array, ...] = (arena, image.constants, workspace)
        first = FIRST_INPUT + len(image.inputs)
        self._outputs = [
            _buffer_of(image.outputs, first + number, nbytes)
            for number, nbytes in enumerate(image.output_bytes)
        ]
        held = [a.ctypes.data for a in self._blocks]
        self._bases = _pointers([*held, *(0 for _ in (*image.inputs, *self._outputs))])
        self._pointer = ctypes.addressof(self._bases)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        fresh = self._place(inputs)
        self._entry(self._pointer)
        out: list[Array] = []
        for port in self._image.outputs:
            number = port.base - FIRST_INPUT - len(inputs)
            if number >= 0 and self._outputs[number][2] is port:
                out.append(fresh[number])
            else:
                block = (*self._blocks, *inputs, *fresh)[port.base]
                out.append(port.view(block.reshape(-1).view(np.uint8)).copy())
        return out

    def bench(
        self, inputs: Sequence[Array], repeats: int, clock: Callable[[], float]
    ) -> tuple[tuple[float, ...], list[list[float]]]:
        fresh = self._place(inputs)
        for _ in range(2):
            self._entry(self._pointer)
        latencies = tuple(_timed(clock, self._entry, self._pointer) for _ in range(repeats))
        per_kernel = self._time_kernels(self._bases, repeats, clock)
        del fresh  # the pointers keep addresses only
        return latencies, per_kernel

    def _place(self, inputs: Sequence[Array]) -> list[Array]:
        """Point the entry to these inputs and to fresh output buffers, which are returned."""
        fresh = self._output_buffers()
        for number, array in enumerate((*inputs, *fresh), FIRST_INPUT):
            self._bases[number] = array.__array_interface__["data"][0]
        return fresh

    def _output_buffers(self) -> list[Array]:
        return [np.empty(shape, kind) for shape, kind, _ in self._outputs]

    def _time_kernels(
        self, bases: _Pointers, repeats: int, clock: Callable[[], float]
    ) -> list[list[float]]:
        """Seconds of every kernel call, in passes over the whole model."""
        calls = []
        for kernel in self._image.kernels:
            args = _pointers([(bases[base] or 0) + offset for base, offset in kernel.args])
            calls.append((_KERNEL(self._library.address(f"{kernel.symbol}_run")), args))
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(repeats):
            for (function, args), row in zip(calls, times, strict=True):
                row.append(_timed(clock, function, ctypes.addressof(args), 1))
        return times


def _buffer_of(ports: Sequence[Port], base: int, nbytes: int) -> _Buffer:
    """Shape and type of an output buffer, and the port that it is the array of; bytes without."""
    for port in ports:
        if port.base == base and port.fills(nbytes):
            return port.type.shape, np.dtype(stored_as(port.type.dtype)), port
    return (nbytes,), np.dtype(np.uint8), None


def _pointers(addresses: Sequence[int]) -> _Pointers:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _timed(clock: Callable[[], float], function: Callable[..., None], *args: int) -> float:
    start = clock()
    function(*args)
    return clock() - start


def _check_array(port: Port, array: Array) -> Array:
    array = np.asarray(array)
    if array.shape != port.type.shape:
        raise FeedError(
            f"input {port.name}: expected shape {list(port.type.shape)}, got {list(array.shape)}; "
            "reshape it, or compile the model for that shape"
        )
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
