"""An emulated GPU as a device, so that whole models run on it.

In: device code whose text is LLVM IR, which `emulated_cuda` makes the CUDA backend give instead
of PTX. Out: what the kernels compute. Everything around is what a GPU gets: programs, launches,
places of tensors, the order of copies.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np

from autotune.codegen.base import DeviceCode, Launch
from autotune.codegen.nvptx import backend as nvptx_backend
from autotune.measure.devices import DeviceAddress, DeviceFacts, Event, Memory, Module
from autotune.measure.devices.cuda import CudaDriver
from autotune.target import Target
from autotune.types import Array
from tests.emulator import Kernels

ALIGNMENT = 256


class EmulatedDevice:
    """Device memory is host memory; everything is done at once. A capture keeps launches and
    addresses, and does what it kept: nobody is asked again."""

    def __init__(self) -> None:
        self._kept: list[Callable[[], None]] | None = None
        """Launches of the capture that is going on."""
        self.replays: list[int] = []
        """Launches of each graph that was run."""

    def describe(self) -> DeviceFacts:
        return DeviceFacts(
            kind="cuda", name="emulator", arch="sm_80", driver="none", memory_bytes=1 << 30,
            multiprocessors=1, max_threads=1024, shared_bytes=166912, clock_hz=1e9,
        )  # fmt: skip

    def allocate(self, nbytes: int) -> Memory:
        raw = np.full(nbytes + ALIGNMENT, 0xFF, np.uint8)
        skip = -raw.ctypes.data % ALIGNMENT
        return raw[skip : skip + nbytes]

    def fill(self, place: DeviceAddress, nbytes: int, byte: int) -> None:
        place.memory[place.offset_bytes : place.offset_bytes + nbytes] = byte

    def upload(self, place: DeviceAddress, array: Array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        place.memory[place.offset_bytes : place.offset_bytes + flat.nbytes] = flat

    def download(self, place: DeviceAddress, array: Array) -> None:
        ctypes.memmove(array.ctypes.data, _address(place), array.nbytes)

    def load(self, code: DeviceCode) -> Module:
        return Kernels(code.text.decode(), code.launches)

    def launch(self, module: Module, launch: Launch, args: Sequence[DeviceAddress]) -> None:
        start = functools.partial(module.launch, launch, [_address(place) for place in args])
        if self._kept is None:
            start()
        else:
            self._kept.append(start)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        kept: list[Callable[[], None]] = []
        self._kept = kept
        run()
        self._kept = None

        def replay() -> None:
            self.replays.append(len(kept))
            for start in kept:
                start()

        return replay

    def synchronize(self) -> None:
        pass

    def mark(self) -> Event:
        return time.perf_counter()

    def elapsed_s(self, start: Event, end: Event) -> float:
        return float(end - start)

    def flush_cache(self) -> None:
        pass

    def conditions(self) -> str:
        return ""

    def close(self) -> None:
        pass


def _address(place: DeviceAddress) -> int:
    return int(place.memory.ctypes.data) + place.offset_bytes


@contextmanager
def emulated_cuda() -> Iterator[EmulatedDevice]:
    """The CUDA backend and driver are those of the emulator."""
    device = EmulatedDevice()

    def text(written: str, target: Target) -> str:  # noqa: ARG001
        return written

    def opened(driver: CudaDriver, target: Target) -> EmulatedDevice:  # noqa: ARG001
        return device

    def chosen(driver: CudaDriver, target: Target) -> DeviceFacts:  # noqa: ARG001
        return device.describe()

    with (
        mock.patch.object(nvptx_backend, "compile_ptx", text),
        mock.patch.object(CudaDriver, "open", opened),
        mock.patch.object(CudaDriver, "choose", chosen),
    ):
        yield device
