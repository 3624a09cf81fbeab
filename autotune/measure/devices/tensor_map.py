"""Tensors as Hopper's copy engine wants them described. In: a TensorMap and an address. Out: what
a kernel is given for it.

The driver's function is called by its address: the package's own call leaves the description at
places that are not multiples of 64, which the driver does not take.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from autotune.codegen.base import TensorMap
from autotune.errors import BuildError, DeviceError

BYTES = 128
"""Bytes of a tensor map (CUDA driver API)."""
_SINCE = 12000
"""Version of CUDA that has the function."""
_Sizes, _Counts = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
Encode = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, _Sizes, _Sizes,
    _Counts, _Counts, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
)  # fmt: skip
"""cuTensorMapEncodeTiled."""


class Caller(Protocol):
    """The driver, see `autotune.measure.devices.cuda`."""

    driver: Any

    def call(self, name: str, *args: Any) -> Any: ...


class EncodedMap:
    """A description in memory, as an argument of a kernel."""

    def __init__(self, api: Caller, described: TensorMap, address: int) -> None:
        """Raises BuildError where there is no such tensor, DeviceError for an old driver."""
        self._block = ctypes.create_string_buffer(2 * BYTES)
        self._place = ctypes.addressof(self._block) + -ctypes.addressof(self._block) % BYTES
        driver, rank = api.driver, len(described.extents)
        dtype = "uint8" if described.dtype == "int8" else described.dtype  # bytes are bytes
        kind = f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}"
        if not hasattr(driver.CUtensorMapDataType, kind):
            raise BuildError(f"the copy engine knows no elements of {described.dtype}")
        status = _function(api)(
            self._place, int(getattr(driver.CUtensorMapDataType, kind)), rank, address,
            (ctypes.c_uint64 * rank)(*described.extents),
            (ctypes.c_uint64 * (rank - 1))(*described.strides_bytes),
            (ctypes.c_uint32 * rank)(*described.box), (ctypes.c_uint32 * rank)(*[1] * rank),
            int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            int(driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B),
            int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
            int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )  # fmt: skip
        if status:
            raise BuildError(f"the GPU's driver cannot fetch boxes of {described}: error {status}")

    def getPtr(self) -> int:  # noqa: N802
        """Where it is: the name that cuda-bindings asks for."""
        return self._place


def _function(api: Caller) -> Any:
    found = api.call("cuGetProcAddress", b"cuTensorMapEncodeTiled", _SINCE, 0)
    address = int(found[0]) if found[0] else 0
    if not address:
        raise DeviceError("the NVIDIA driver is older than CUDA 12: it cannot describe tensors")
    return Encode(address)
