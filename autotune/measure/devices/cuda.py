"""NVIDIA GPUs through the CUDA driver's API (extra `[cuda]`: cuda-bindings). No toolkit is needed.

The driver compiles PTX when it is loaded. One stream in order; times are those of its events.
After a wild access every call of the process fails: only a new one can use the GPU.
"""

from __future__ import annotations

import ctypes
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from autotune.codegen.base import DeviceCode, Launch, TensorMap
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
from autotune.measure.devices.clocks import held_clocks
from autotune.measure.devices.nvml import Nvml, open_nvml
from autotune.measure.devices.tensor_map import EncodedMap
from autotune.target import Target
from autotune.types import Array

LOG_BYTES = 8192
"""Bytes of the driver's messages about a module."""
BUS_LENGTH = 32
"""Bytes of a PCI bus id as text."""
FLUSH_FACTOR = 2
"""A flush writes this many times the last-level cache."""
_REFUSED = (
    "INVALID_PTX", "UNSUPPORTED_PTX_VERSION", "NO_BINARY_FOR_GPU", "INVALID_IMAGE",
    "JIT_COMPILER_NOT_FOUND", "NOT_FOUND", "LAUNCH_OUT_OF_RESOURCES",
)  # fmt: skip
"""What the code is to blame for."""


def _package() -> types.ModuleType:
    """The driver's functions. Raises DeviceError."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise DeviceError(
            "NVIDIA GPUs need the package cuda-bindings, and it is not installed; "
            "pip install 'autotune-compiler[cuda]'"
        ) from None
    module: types.ModuleType = driver
    return module


class Api:
    """The driver's functions, with errors raised. `driver`: `cuda.bindings.driver`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._context: Any = None
        self._thread = threading.local()

    def enter(self, context: Any) -> None:
        """What is called from now on, in any thread, means this context."""
        self._context, self._thread = context, threading.local()

    def call(self, name: str, *args: Any) -> Any:
        """The function's result. Raises BuildError (the code is to blame) or DeviceError."""
        self._enter_here()
        status, *values = getattr(self.driver, name)(*args)
        if int(status):
            raise self._error(name, status)
        return values[0] if len(values) == 1 else tuple(values)

    def give_back(self, name: str, what: Any) -> None:
        """As `call`, for what nothing refers to any more: maybe in another thread, or while the
        process is on its way out, where errors say nothing new."""
        self._enter_here()
        getattr(self.driver, name)(what)

    def _enter_here(self) -> None:
        if self._context is not None and not hasattr(self._thread, "entered"):
            self._thread.entered = True  # every thread has a context of its own
            self.driver.cuCtxSetCurrent(self._context)

    def _error(self, name: str, status: Any) -> Exception:
        _, text = self.driver.cuGetErrorName(status)
        word = (text or b"unknown error").decode().removeprefix("CUDA_ERROR_")
        if word in _REFUSED:
            return BuildError(f"the GPU's driver refused the kernel: {word} ({name})")
        return DeviceError(f"the GPU's driver answers {word} to {name}")

    def attribute(self, device: Any, name: str) -> int:
        key = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", key, device))


def _started() -> Api:
    """The driver, ready. Raises DeviceError in one line where there is none."""
    api = Api(_package())
    try:
        api.call("cuInit", 0)
        if api.call("cuDeviceGetCount"):
            return api
    except (DeviceError, RuntimeError) as error:  # the package raises its own where none is found
        first = str(error).strip().splitlines()[0]
        if not first.endswith("NO_DEVICE to cuInit"):
            why = "install it first, or see nvidia-smi"
            raise DeviceError(f"no NVIDIA driver answers here ({first}); {why}") from None
    raise DeviceError("the NVIDIA driver finds no GPU; see nvidia-smi")


class _Block:
    """Device memory that is given back with its last reference."""

    def __init__(self, api: Api, nbytes: int) -> None:
        self._api = api
        try:
            self.address = int(api.call("cuMemAlloc", max(nbytes, 128)))
        except DeviceError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            free, whole = api.call("cuMemGetInfo")
            raise DeviceError(
                f"the GPU has no {nbytes / 1e6:.1f} MB left: {free / 1e6:.1f} of "
                f"{whole / 1e6:.1f} MB are free; end what else uses it, or take a smaller batch"
            ) from None

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._api.give_back("cuMemFree", self.address)


class CudaDevice:
    """One GPU. Its context belongs to the process that opened it."""

    def __init__(self, api: Api, number: int, nvml: Nvml | None) -> None:
        self._api, self._nvml = api, nvml
        self._device = api.call("cuDeviceGet", number)
        api.enter(api.call("cuDevicePrimaryCtxRetain", self._device))
        flags = api.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = api.call("cuStreamCreate", int(flags))
        self._flush: _Block | None = None
        self._flush_bytes = FLUSH_FACTOR * max(api.attribute(self._device, "L2_CACHE_SIZE"), 1)

    def describe(self) -> DeviceFacts:
        return _facts(self._api, self._device)

    # -------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> Memory:
        return _Block(self._api, nbytes)

    def fill(self, place: DeviceAddress, nbytes: int, byte: int) -> None:
        if nbytes:
            self._api.call("cuMemsetD8Async", _address(place), byte, nbytes, self._stream)

    def upload(self, place: DeviceAddress, array: Array) -> None:
        flat = np.ascontiguousarray(array)
        if flat.nbytes:
            self._copy("cuMemcpyHtoDAsync", _address(place), flat.ctypes.data, flat.nbytes)

    def download(self, place: DeviceAddress, array: Array) -> None:
        if array.nbytes:
            self._copy("cuMemcpyDtoHAsync", array.ctypes.data, _address(place), array.nbytes)

    def _copy(self, name: str, to: int, source: int, nbytes: int) -> None:
        """In the stream, for the default one does not wait for it; and waited for."""
        self._api.call(name, to, source, nbytes, self._stream)
        self.synchronize()

    def flush_cache(self) -> None:
        if self._flush is None:
            self._flush = _Block(self._api, self._flush_bytes)
        self.fill(DeviceAddress(memory=self._flush), self._flush_bytes, 0)

    # ------------------------------------------------------------------------------------- kernels

    def load(self, code: DeviceCode) -> Module:
        """Kernels by name, and what keeps them loaded."""
        log = bytearray(LOG_BYTES)
        option = self._api.driver.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            module = self._api.call(
                "cuModuleLoadDataEx", code.text + b"\0", len(options), options, [log, LOG_BYTES]
            )
        except BuildError as error:
            said = " ".join(bytes(log).split(b"\0")[0].decode(errors="replace").split())
            raise BuildError(f"{error}; {said[:300]}" if said else str(error)) from None
        return _Module(self._api, module, code.launches)

    def launch(self, module: Module, launch: Launch, args: Sequence[DeviceAddress]) -> None:
        plain = len(args) - len(launch.maps)
        pointers = tuple(_address(place) for place in args[:plain])
        maps = [
            module.map_of(described, _address(place))
            for described, place in zip(launch.maps, args[plain:], strict=True)
        ]
        kinds = (*[ctypes.c_void_p] * plain, *[None] * len(maps))
        self._api.call(
            "cuLaunchKernel", module.kernels[launch.kernel], *launch.grid, *launch.block,
            launch.shared_bytes, self._stream, ((*pointers, *maps), kinds), 0,
        )  # fmt: skip

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of what `run` puts into the stream."""
        api, mode = self._api, self._api.driver.CUstreamCaptureMode
        api.call("cuStreamBeginCapture", self._stream, mode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            run()
        finally:
            graph = api.call("cuStreamEndCapture", self._stream)
        replay = _Graph(api, api.call("cuGraphInstantiate", graph, 0), run)
        api.call("cuGraphDestroy", graph)
        return lambda: replay.launch(self._stream)

    def synchronize(self) -> None:
        self._api.call("cuStreamSynchronize", self._stream)

    # ---------------------------------------------------------------------------------------- time

    def mark(self) -> Event:
        event = self._api.call("cuEventCreate", 0)
        self._api.call("cuEventRecord", event, self._stream)
        return _Event(self._api, event)

    def elapsed_s(self, start: Event, end: Event) -> float:
        self._api.call("cuEventSynchronize", end.event)
        return float(self._api.call("cuEventElapsedTime", start.event, end.event)) * 1e-3

    def conditions(self) -> str:
        return self._nvml.conditions() if self._nvml else ""

    def close(self) -> None:
        """Give the context back. What was allocated and loaded must not be used any more."""
        self.synchronize()
        self._flush = None
        self._api.call("cuStreamDestroy", self._stream)
        self._api.call("cuDevicePrimaryCtxRelease", self._device)


class _Module:
    """A loaded module; it goes with its last reference."""

    def __init__(self, api: Api, module: Any, launches: Sequence[Launch]) -> None:
        self._api, self._module = api, module
        self._maps: dict[tuple[TensorMap, int], EncodedMap] = {}
        attribute = api.driver.CUfunction_attribute
        self.kernels: dict[str, Any] = {}
        for launch in launches:
            function = api.call("cuModuleGetFunction", module, launch.kernel.encode())
            self.kernels[launch.kernel] = function
            if launch.shared_bytes:  # beyond 48 KiB only on request
                key = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                api.call("cuFuncSetAttribute", function, key, launch.shared_bytes)

    def map_of(self, described: TensorMap, address: int) -> EncodedMap:
        """What the copy engine needs to know of a tensor; made once."""
        key = (described, address)
        if key not in self._maps:
            self._maps[key] = EncodedMap(self._api, described, address)
        return self._maps[key]

    def __del__(self) -> None:
        self._api.give_back("cuModuleUnload", self._module)


class _Graph:
    """An instantiated graph; `run` keeps alive what it uses."""

    def __init__(self, api: Api, graph: Any, run: Callable[[], None]) -> None:
        self._api, self._graph, self._run = api, graph, run

    def launch(self, stream: Any) -> None:
        self._api.call("cuGraphLaunch", self._graph, stream)

    def __del__(self) -> None:
        self._api.give_back("cuGraphExecDestroy", self._graph)


class _Event:
    def __init__(self, api: Api, event: Any) -> None:
        self._api, self.event = api, event

    def __del__(self) -> None:
        self._api.give_back("cuEventDestroy", self.event)


def _address(place: DeviceAddress) -> int:
    return int(place.memory.address) + place.offset_bytes


def _facts(api: Api, device: Any) -> DeviceFacts:
    major = api.attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    minor = api.attribute(device, "COMPUTE_CAPABILITY_MINOR")
    number = 10 * major + minor
    version = _version(api)
    features = {
        "fp64": 13, "fp16": 53, "int8": 61, "tensor cores": 70, "bf16": 80, "async copy": 80,
        "wgmma": 90,
    }  # fmt: skip
    return DeviceFacts(
        kind="cuda",
        name=api.call("cuDeviceGetName", 128, device).split(b"\0")[0].decode(),
        arch=f"sm_{number}" + ("a" if number >= 90 else ""),
        driver=f"CUDA {version[0]}.{version[1]}",
        memory_bytes=int(api.call("cuDeviceTotalMem", device)),
        multiprocessors=api.attribute(device, "MULTIPROCESSOR_COUNT"),
        max_threads=api.attribute(device, "MAX_THREADS_PER_BLOCK"),
        shared_bytes=api.attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        clock_hz=api.attribute(device, "CLOCK_RATE") * 1e3,
        warp=32,
        features=tuple(name for name, since in features.items() if number >= since),
    )


def _chosen(target: Target) -> tuple[Api, int]:
    """The GPU that runs the target's code: the first of those that can, or the one that the target
    tells. Raises DeviceError."""
    api = _started()
    every = [_facts(api, api.call("cuDeviceGet", n)) for n in range(api.call("cuDeviceGetCount"))]
    good = [number for number, facts in enumerate(every) if runs(facts.arch, target.arch)]
    if not good:
        here = ", ".join(f"{facts.name} ({facts.arch})" for facts in every)
        raise DeviceError(
            f"code for {target.arch} runs on none of {here}; choose another target, if there is "
            "one for it (`autotune targets`), or compile only"
        )
    check_number(target, [every[number].name for number in good])
    _check_driver(api, target)
    return api, good[target.device]


def _check_driver(api: Api, target: Target) -> None:
    """Raises DeviceError where the driver is older than the PTX that it would get."""
    needed, here = (target.ptx // 10 + 4, target.ptx % 10), _version(api)
    if here < needed:
        raise DeviceError(
            f"the NVIDIA driver is of CUDA {here[0]}.{here[1]}, code for {target.name} needs one "
            f"of CUDA {needed[0]}.{needed[1]} or newer; update the driver"
        )


def _version(api: Api) -> tuple[int, int]:
    """The version of CUDA that the driver is for."""
    number = int(api.call("cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


def _bus(api: Api, number: int) -> str:
    """A GPU's place there, for NVML has numbers of its own."""
    bus = api.call("cuDeviceGetPCIBusId", BUS_LENGTH, api.call("cuDeviceGet", number))
    return str(bus.split(b"\0")[0].decode())


def locked_clocks(target: Target) -> AbstractContextManager[str]:
    """Holds the clocks of the GPU for the target; gives nothing, or why they are not held. Raises
    DeviceError where there is no such GPU."""
    return held_clocks(_bus(*_chosen(target)))


class CudaDriver:
    """The devices that NVIDIA's driver finds."""

    def open(self, target: Target) -> CudaDevice:
        api, number = _chosen(target)
        return CudaDevice(api, number, open_nvml(_bus(api, number)))

    def choose(self, target: Target) -> DeviceFacts:
        api, number = _chosen(target)
        return _facts(api, api.call("cuDeviceGet", number))

    def find(self) -> tuple[DeviceFacts, ...]:
        try:
            api = _started()
            numbers = range(api.call("cuDeviceGetCount"))
            return tuple(_facts(api, api.call("cuDeviceGet", number)) for number in numbers)
        except DeviceError:
            return ()


def runs(device: str, code: str) -> bool:
    """Whether a GPU of an architecture runs PTX for another: newer ones do, but code for "a"
    architectures is for just those."""
    if code.endswith("a"):
        return device == code
    return int(device.strip("sm_a")) >= int(code.strip("sm_a"))


DEVICES.add("cuda", CudaDriver())
