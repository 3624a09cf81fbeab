"""OpenCL devices through pyopencl (extra `[opencl]`): any vendor's driver, or PoCL on a CPU.

One queue in order, with profiling: events are markers, and times are the device's own.
"""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune.codegen.base import DeviceCode, Launch
from autotune.errors import BuildError, DeviceError
from autotune.measure.devices.base import (
    DEVICES,
    DeviceAddress,
    DeviceFacts,
    Event,
    Memory,
    Module,
    check_number,
)
from autotune.target import Target
from autotune.types import Array

OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")
_NOTHING = "kernel void nothing(global float *o) { o[get_global_id(0)] = 0; }"
FLUSH_BYTES = 64 << 20
"""Bytes written to push operands out of a device's cache."""
_FEATURES = {
    "cl_khr_fp64": "fp64", "cl_khr_fp16": "fp16", "cl_khr_subgroup_shuffle": "subgroups",
    "cl_khr_int64_base_atomics": "int64 atomics", "cl_khr_command_buffer": "command buffers",
}  # fmt: skip


def _package() -> types.ModuleType:
    """pyopencl. Raises DeviceError."""
    try:
        import pyopencl
    except ImportError:
        raise DeviceError(
            "OpenCL devices need the package pyopencl, and it is not installed; "
            "pip install 'autotune-compiler[opencl]'"
        ) from None
    return pyopencl


def _devices(cl: types.ModuleType) -> list[Any]:
    """Every device of every driver, GPUs first."""
    try:
        found = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.Error as error:
        raise DeviceError(
            f"no OpenCL driver answers ({error}); install the vendor's, or PoCL, which makes a "
            "device of any CPU (Debian: pocl-opencl-icd)"
        ) from None
    return sorted(found, key=lambda d: not d.type & cl.device_type.GPU)


class OpenClDevice:
    """One device."""

    def __init__(self, cl: types.ModuleType, device: Any) -> None:
        self._cl, self._device = cl, device
        self._context = cl.Context([device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, properties=profiling)
        self._flush: Memory | None = None

    def describe(self) -> DeviceFacts:
        return _facts(self._cl, self._device)

    def allocate(self, nbytes: int) -> Memory:
        flags = self._cl.mem_flags.READ_WRITE
        try:
            return self._cl.Buffer(self._context, flags, size=max(nbytes, 128))
        except self._cl.Error as error:
            raise DeviceError(
                f"{self._device.name} gives no {nbytes} bytes of memory ({error})"
            ) from None

    def fill(self, place: DeviceAddress, nbytes: int, byte: int) -> None:
        if nbytes:
            pattern = np.uint8(byte)
            self._do(
                self._cl.enqueue_fill_buffer, place.memory, pattern, place.offset_bytes, nbytes
            )

    def upload(self, place: DeviceAddress, array: Array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if flat.nbytes:
            self._do(
                self._cl.enqueue_copy, place.memory, flat, dst_offset=place.offset_bytes,
                is_blocking=True,
            )  # fmt: skip

    def download(self, place: DeviceAddress, array: Array) -> None:
        flat = array.reshape(-1).view(np.uint8)
        if flat.nbytes:
            self._do(
                self._cl.enqueue_copy, flat, place.memory, src_offset=place.offset_bytes,
                is_blocking=True,
            )  # fmt: skip

    def load(self, code: DeviceCode) -> Module:
        """Kernels by name."""
        cl = self._cl
        try:
            with warnings.catch_warnings():  # some compilers say that they were here
                warnings.simplefilter("ignore", cl.CompilerWarning)
                program = cl.Program(self._context, code.text.decode()).build(list(OPTIONS))
            kernels = {
                n: cl.Kernel(program, n) for n in dict.fromkeys(x.kernel for x in code.launches)
            }
        except cl.Error as error:
            lines = [line.strip() for line in str(error).splitlines() if "error" in line]
            first = (lines or [str(error).strip()])[0]
            raise BuildError(f"the OpenCL compiler refused the program: {first[:300]}") from None
        for launch in code.launches:
            self._check(launch, kernels[launch.kernel])
        return kernels

    def _check(self, launch: Launch, kernel: Any) -> None:
        """Raises BuildError for a block that does not fit: registers too are a limit here."""
        known = self._cl.kernel_work_group_info
        most = kernel.get_work_group_info(known.WORK_GROUP_SIZE, self._device)
        shared = kernel.get_work_group_info(known.LOCAL_MEM_SIZE, self._device)
        threads, limit = math.prod(launch.block), self._device.local_mem_size
        if threads > most or shared > limit:
            raise BuildError(
                f"a block of {threads} threads and {shared} bytes of shared memory; "
                f"{self._device.name} has {most} and {limit} for this kernel"
            )

    def launch(self, module: Module, launch: Launch, args: Sequence[DeviceAddress]) -> None:
        kernel = module[launch.kernel]
        total = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
        # One by one: setting them together, pyopencl first writes code to a cache on disk.
        for number, place in enumerate(args):
            kernel.set_arg(2 * number, place.memory)
            kernel.set_arg(2 * number + 1, np.int64(place.offset_bytes))
        self._do(self._cl.enqueue_nd_range_kernel, kernel, total, launch.block)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run

    def synchronize(self) -> None:
        self._do(lambda queue: queue.finish())

    def mark(self) -> Event:
        return self._do(self._cl.enqueue_marker)

    def elapsed_s(self, start: Event, end: Event) -> float:
        end.wait()
        return float(end.profile.end - start.profile.end) * 1e-9

    def flush_cache(self) -> None:
        if self._flush is None:
            self._flush = self.allocate(FLUSH_BYTES)
        self.fill(DeviceAddress(memory=self._flush), FLUSH_BYTES, 0)

    def conditions(self) -> str:
        return ""

    def close(self) -> None:
        self._flush = None
        self.synchronize()

    def _do(self, command: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """A command of the queue. Raises DeviceError."""
        try:
            return command(self._queue, *args, **settings)
        except self._cl.Error as error:
            raise DeviceError(f"{self._device.name} refused: {error}") from None


def _facts(cl: types.ModuleType, device: Any) -> DeviceFacts:
    words = set(device.extensions.split())
    return DeviceFacts(
        kind="opencl",
        name=device.name.strip(),
        arch="cpu" if device.type & cl.device_type.CPU else "gpu",
        driver=f"{device.platform.name} {device.driver_version}".strip(),
        memory_bytes=device.global_mem_size,
        multiprocessors=device.max_compute_units,
        max_threads=device.max_work_group_size,
        shared_bytes=device.local_mem_size,
        clock_hz=device.max_clock_frequency * 1e6,
        warp=_warp(cl, device),
        vector_bytes=4 * max(1, device.native_vector_width_float),
        features=tuple(short for word, short in _FEATURES.items() if word in words),
    )


def _warp(cl: types.ModuleType, device: Any) -> int:
    """Threads in step: 1 where a processor makes loops of them; 0 where it is not known."""
    if device.type & cl.device_type.CPU:
        return 1
    for name in ("WARP_SIZE_NV", "WAVEFRONT_WIDTH_AMD"):
        try:
            return int(device.get_info(getattr(cl.device_info, name)))
        except (AttributeError, cl.Error):  # another vendor's
            continue
    try:
        program = cl.Program(cl.Context([device]), _NOTHING).build()
        multiple = cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE
        return int(cl.Kernel(program, "nothing").get_work_group_info(multiple, device))
    except cl.Error:
        return 0


def _chosen(target: Target) -> tuple[types.ModuleType, Any]:
    """OpenCL code runs on any device."""
    cl = _package()
    found = _devices(cl)
    if not found:
        raise DeviceError("no OpenCL device here; install a driver (Debian: pocl-opencl-icd)")
    check_number(target, [device.name.strip() for device in found])
    return cl, found[target.device]


class OpenClDriver:
    """The devices that pyopencl finds."""

    def open(self, target: Target) -> OpenClDevice:
        return OpenClDevice(*_chosen(target))

    def choose(self, target: Target) -> DeviceFacts:
        return _facts(*_chosen(target))

    def find(self) -> tuple[DeviceFacts, ...]:
        try:
            cl = _package()
            return tuple(_facts(cl, device) for device in _devices(cl))
        except DeviceError:
            return ()


DEVICES.add("opencl", OpenClDriver())
