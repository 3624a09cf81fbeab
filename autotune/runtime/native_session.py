"""A compiled model on this machine's cores. In: a ModelImage and host arrays. Out: host arrays.

A run is one native call: the entry executes every kernel in one parallel region over one arena.
The call gives up Python's interpreter lock, so that other threads go on beside it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from autotune.codegen.base import DEVICE_KINDS, Library
from autotune.memory import Bytes, address, fresh_array, zeroed_block
from autotune.runtime.host import check_host
from autotune.runtime.image import (
    ARENA,
    ENTRY_SYMBOL,
    FIRST_INPUT,
    WORKSPACE,
    ModelImage,
    Port,
)
from autotune.runtime.output_copies import OutputCopies
from autotune.runtime.session import NOWHERE, Session
from autotune.runtime.watched import WatchedWords
from autotune.stored import stored_as
from autotune.types import Array

_Pointers = ctypes.Array[ctypes.c_void_p]
_Buffer = tuple[tuple[int, ...], np.dtype[Any], Port | None]
Entry = Callable[[int], None]
"""Runs a model: takes the address of its array of pointers."""
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class SessionMaker:
    """Makes sessions of an image. They share its weights, and its code where that keeps nothing
    between calls: code for several threads has a team of its own each time that it is loaded."""

    def __init__(self, image: ModelImage, library: Library | None) -> None:
        """`library`: the image's objects where they are loaded already."""
        self._image, self._library = image, library
        self._shared = image.target.threads == 1 or image.target.kind == "c"

    def __call__(self) -> Session:
        """Raises BuildError, DeviceError, and ArtifactError for an image of another CPU."""
        image = self._image
        check_host(image.target, f"model {image.name}")
        if image.target.kind in DEVICE_KINDS:
            from autotune.measure.devices import open_device  # only where there is one
            from autotune.runtime.device_session import DeviceSession

            return DeviceSession(image, open_device(image.target))
        library = self._library
        if library is None:
            from autotune.codegen.loader import load  # a model only saved needs no code

            library = load(image.objects, image.target)
        self._library = library if self._shared else None
        return NativeSession(image, library)


class NativeSession:
    """An image in memory: its code, its blocks, and the entry function."""

    def __init__(
        self,
        image: ModelImage,
        library: Library,
        entry: Entry | None = None,
        further: Sequence[int] = (),
    ) -> None:
        """`entry`: what runs the model, where it is not the image's own; `further`: pointers for
        it, behind those of the outputs."""
        self._image, self._library = image, library
        self._code = 0 if entry else library.address(ENTRY_SYMBOL)
        self._entry: Entry = entry or _ENTRY(self._code)
        arena, workspace = self._own_blocks()
        self._blocks: tuple[Array, ...] = (arena, image.constants, workspace)
        self._first = FIRST_INPUT + len(image.inputs)
        self._outputs = [
            _buffer_of(image.outputs, self._first + number, nbytes)
            for number, nbytes in enumerate(image.output_bytes)
        ]
        ports = [port for _, _, port in self._outputs]
        self._whole = len(ports) == len(image.outputs) and all(map(_same, ports, image.outputs))
        self._copies = None if self._whole else OutputCopies(image)
        held = [address(a) if a.nbytes else 0 for a in self._blocks]
        callers = [0 for _ in (*image.inputs, *self._outputs)]
        self._bases = _pointers([*held, *callers, *further])
        self._pointer = ctypes.addressof(self._bases)
        first = self._pointer + FIRST_INPUT * ctypes.sizeof(ctypes.c_void_p)
        self._words = (ctypes.c_void_p * 3)(self._code, first, self._pointer)
        self.words_address = ctypes.addressof(self._words)
        """Address of three words for native callers that place pointers themselves: the entry,
        where pointers of inputs and outputs begin, and what the entry takes."""

    def _own_blocks(self) -> tuple[Bytes, Bytes]:
        """Arena and workspace."""
        return zeroed_block(self._image.arena_bytes), zeroed_block(self._image.workspace_bytes)

    def _lie_in(self, arena: Bytes, workspace: Bytes) -> None:
        """Run in other memory from now on."""
        self._blocks = (arena, self._image.constants, workspace)
        self._bases[ARENA], self._bases[WORKSPACE] = address(arena), address(workspace)

    def run(
        self,
        inputs: Sequence[Array],
        numbers: Sequence[int] | None = None,
        into: Mapping[int, Array] = NOWHERE,
    ) -> list[Array]:
        fresh = self._place(inputs, into)
        self._entry(self._pointer)
        if numbers is None and self._whole:
            return fresh
        ports = self._image.outputs
        out: list[Array] = []
        for port in ports if numbers is None else [ports[n] for n in numbers]:
            number = port.base - self._first
            if number >= 0 and self._outputs[number][2] is port:
                out.append(fresh[number])
            else:
                block = (*self._blocks, *inputs, *fresh)[port.base]
                out.append(port.view(block.reshape(-1).view(np.uint8)).copy())
        return out

    @property
    def by_words(self) -> bool:
        """Whether native callers may run the model by `words_address`: each output is a buffer of
        its own, in order."""
        return self._whole

    def run_at(self, addresses: Sequence[int], words: WatchedWords | None = None) -> bool:
        """One inference on memory of the caller's: addresses of the inputs, then of the outputs.
        What lies there is as the model declares it: nothing is checked. Where `words` have
        changed, nothing is run, and the result is False."""
        copies = self._copies
        placed = addresses if copies is None else copies.placed(addresses)
        self._bases[FIRST_INPUT : FIRST_INPUT + len(placed)] = placed  # type: ignore[call-overload]
        if words is None:
            self._entry(self._pointer)
        elif not words.enter(words.pointer, self._code, self._pointer):
            return False
        if copies is not None:
            copies.copy(self._bases, addresses)
        return True

    @property
    def entry_words(self) -> tuple[int, int, int, int]:
        """How native code calls the model: see `autotune.codegen.llvm.trips`."""
        return self._code, 0, 0, 0

    def held(self) -> AbstractContextManager[object]:
        """The memory that the model runs in, for those who call it without Python."""
        return nullcontext()

    def pointers(self) -> list[int]:
        """What the entry takes, without inputs and outputs: these are the caller's to place."""
        return [pointer or 0 for pointer in self._bases]

    def is_whole(self, port: Port) -> bool:
        """Whether an output is all of a buffer of its own."""
        number = port.base - self._first
        return number >= 0 and self._outputs[number][2] is port

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

    def _place(self, inputs: Sequence[Array], into: Mapping[int, Array] = NOWHERE) -> list[Array]:
        """Point the entry to these inputs and to output buffers, which are returned: fresh ones,
        or those of `into` that are all of a buffer."""
        fresh = self._output_buffers()
        for number in into:
            port = self._image.outputs[number]
            slot = port.base - self._first
            if slot >= 0 and self._outputs[slot][2] is port:
                fresh[slot] = into[number]
        bases, number = self._bases, FIRST_INPUT
        for array in inputs:
            bases[number] = address(array)
            number += 1
        for array in fresh:
            bases[number] = address(array)
            number += 1
        return fresh

    def _output_buffers(self) -> list[Array]:
        return [fresh_array(shape, kind) for shape, kind, _ in self._outputs]

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


def _same(one: object, other: object) -> bool:
    return one is other


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
