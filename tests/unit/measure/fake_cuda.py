"""A CUDA driver that does nothing but write down what it is asked for.

Names and constants are those of the real package, and so is the number of arguments: a call that
cuda-bindings would not take fails here too. Device memory is host memory, so copies are real.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as real

from autotune.measure.devices.tensor_map import Encode

ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "CLOCK_RATE": 1_980_000, "L2_CACHE_SIZE": 1 << 20,
}  # fmt: skip
OK = real.CUresult.CUDA_SUCCESS


class FakeCuda:
    """In the place of `cuda.bindings.driver`. `failing`: function -> the status it gives."""

    def __init__(self, devices: int = 1, **failing: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.failing, self.devices = failing, devices
        self.memory: dict[int, Any] = {}
        self.log = b""
        self.encoded: list[tuple[Any, ...]] = []
        """Tensors that were described to the copy engine."""
        self._encode = Encode(self._encode_tensor)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(real, name)  # enumerations
        wanted = getattr(real, name).__doc__.splitlines()[0].split("(", 1)[1].rsplit(")", 1)[0]
        count = wanted.count(",") + 1 if wanted else 0

        def function(*args: Any) -> tuple[Any, ...]:
            typed = wanted.count("list[") + wanted.count("tuple[")
            assert len(args) == count or typed, f"{name} takes ({wanted}), got {args}"
            self.calls.append((name, args))
            if name in self.failing:
                return self.failing[name], None
            return OK, *getattr(self, f"_{name}", lambda *_: (name,))(*args)

        return function

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of every call of a function."""
        return [args for called, args in self.calls if called == name]

    def order(self, *names: str) -> list[str]:
        """The calls among `names`, in order."""
        return [called for called, _ in self.calls if called in names]

    # ------------------------------------------------------------------- what some functions give

    def cuGetErrorName(self, status: Any) -> tuple[Any, bytes]:  # noqa: N802
        return OK, str(status.name).encode()

    def _cuDeviceGetCount(self) -> tuple[int]:  # noqa: N802
        return (self.devices,)

    def _cuDeviceGetAttribute(self, key: Any, _: Any) -> tuple[int]:  # noqa: N802
        return (ATTRIBUTES[key.name.removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def _cuDeviceGetName(self, length: int, _: Any) -> tuple[bytes]:  # noqa: N802
        return (b"H0".ljust(length, b"\0"),)

    def _cuDeviceTotalMem(self, _: Any) -> tuple[int]:  # noqa: N802
        return (1 << 34,)

    def _cuDriverGetVersion(self) -> tuple[int]:  # noqa: N802
        return (12090,)

    def _cuGetProcAddress(self, name: bytes, *_: Any) -> tuple[Any, int]:  # noqa: N802
        assert name == b"cuTensorMapEncodeTiled"
        return ctypes.cast(self._encode, ctypes.c_void_p).value, 0

    def _encode_tensor(self, place: int, *args: Any) -> int:
        kind, rank, address, sizes, strides, box, steps, *modes = args
        assert place % 64 == 0
        self.encoded.append(
            (kind, address, sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], modes)
        )
        return 0 if address % 16 == 0 else int(real.CUresult.CUDA_ERROR_INVALID_VALUE)

    def _cuMemAlloc(self, nbytes: int) -> tuple[int]:  # noqa: N802
        block = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(block)] = block
        return (ctypes.addressof(block),)

    def _cuMemcpyHtoDAsync(  # noqa: N802
        self, to: int, source: int, count: int, _: Any
    ) -> tuple[()]:
        ctypes.memmove(to, source, count)
        return ()

    _cuMemcpyDtoHAsync = _cuMemcpyHtoDAsync  # noqa: N815

    def _cuMemsetD8Async(self, to: int, byte: int, count: int, _: Any) -> tuple[()]:  # noqa: N802
        ctypes.memset(to, byte, count)
        return ()

    def _cuEventElapsedTime(self, *_: Any) -> tuple[float]:  # noqa: N802
        return (2.5,)
