"""Devices with their own memory: they hold blocks of memory, load code, launch it and time it.

All work goes to one queue in order. Memory, modules and events are the driver's own objects and
mean something to their device only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.codegen.base import DeviceCode, Launch
from autotune.errors import BuildError, DeviceError
from autotune.registry import Registry
from autotune.target import Target
from autotune.types import Array

Memory = Any
Module = Any
Event = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAddress:
    """An address in a device's memory: a block that `allocate` gave, and bytes from its start."""

    memory: Memory
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device's description of itself. Zero: it does not say."""

    kind: str
    name: str
    arch: str
    driver: str
    memory_bytes: int
    multiprocessors: int
    max_threads: int
    shared_bytes: int
    clock_hz: float
    warp: int = 0
    """Threads that run in step."""
    vector_bytes: int = 0
    """Bytes of the widest vectors that one thread computes with."""
    features: tuple[str, ...] = ()
    """What code may use beside the ordinary: subgroups, fp16, fp64, bf16..."""


class Device(Protocol):
    """An open device. Every method raises DeviceError where the driver refuses."""

    def describe(self) -> DeviceFacts: ...

    def allocate(self, nbytes: int) -> Memory:
        """A block of device memory, aligned to at least 128 bytes, contents undefined. It is given
        back when nothing refers to it."""
        ...

    def fill(self, place: DeviceAddress, nbytes: int, byte: int) -> None:
        """Every byte to `byte`."""
        ...

    def upload(self, place: DeviceAddress, array: Array) -> None:
        """The array's bytes (C order); the array may change as soon as this returns."""
        ...

    def download(self, place: DeviceAddress, array: Array) -> None:
        """Fill a C-contiguous array; waits for all work before it."""
        ...

    def load(self, code: DeviceCode) -> Module:
        """Code ready for launching. Raises BuildError where the driver's compiler refuses it."""
        ...

    def launch(self, module: Module, launch: Launch, args: Sequence[DeviceAddress]) -> None:
        """Put one launch into the queue; `args` in the order of `launch.args`."""
        ...

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """What `run` launches, as something to be launched again and again at less cost (a CUDA
        graph), or `run` itself. Memory that it uses must stay."""
        ...

    def synchronize(self) -> None:
        """Wait for all work."""
        ...

    def mark(self) -> Event:
        """An event in the queue."""
        ...

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Seconds on the device between two events; waits for the second."""
        ...

    def flush_cache(self) -> None:
        """Leave nothing useful in the last-level cache."""
        ...

    def conditions(self) -> str:
        """Its clocks, temperature and power now; empty where it does not tell."""
        ...

    def close(self) -> None: ...


class Driver(Protocol):
    """A way to devices: one per kind of target."""

    def open(self, target: Target) -> Device:
        """The first device, or the one that the target tells. Raises DeviceError: the package, the
        driver or the device is missing, or cannot run the target's code."""
        ...

    def choose(self, target: Target) -> DeviceFacts:
        """What `open` would open. Raises as it does."""
        ...

    def find(self) -> tuple[DeviceFacts, ...]:
        """Devices of this machine; none where package or driver are missing."""
        ...


DEVICES: Registry[Driver] = Registry("device driver")


def open_device(target: Target) -> Device:
    """The device that runs code for a target. Raises DeviceError, or BuildError where targets of
    this kind need none."""
    if target.kind not in DEVICES:
        known = ", ".join(DEVICES)
        raise BuildError(f"targets of kind {target.kind!r} have no device driver; known: {known}")
    return DEVICES.get(target.kind).open(target)


def check_number(target: Target, names: Sequence[str]) -> None:
    """Raises DeviceError where the target's device is none of those that can run its code."""
    if target.device >= len(names):
        here = ", ".join(f"{number}: {name}" for number, name in enumerate(names))
        raise DeviceError(
            f"there is no device {target.device} for {target.name} here; choose one of {here}"
        )
