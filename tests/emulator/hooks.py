"""What the emulated driver needs of a process: kernels, which are not run as the PTX they are.

In: modules of this project as they are imported. Out: PTX with the LLVM IR that it is made of in a
comment, which `driver.c` asks to be compiled for this machine when the PTX is loaded; and figures
of the device that are made up, for the emulator is too slow to be measured.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import re
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

LIBRARY = "libcuda.so.1"
_MARK = "// IR "
_KERNEL = re.compile(r'^define ptx_kernel void @(\w+)\((.*)\) "nvvm\.reqntid"="([\d,]+)"', re.M)


class _Kernel(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_void_p), ("args", ctypes.c_int32), ("maps", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
    ]  # fmt: skip


_Load = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_Find = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_Kernel))
_loaded: list[tuple[str, Any]] = []
"""Texts and their kernels: a module is a place here."""


def change(module: ModuleType) -> None:
    """A module that has just been imported."""
    if module.__name__ == "autotune.codegen.nvptx.backend":
        module.__dict__["compile_ptx"] = _with_ir(module.__dict__["compile_ptx"])
    elif module.__name__ == "autotune.measure.devices.profile":
        module.__dict__["measure_device"] = _made_up
    else:
        ctypes.CDLL(LIBRARY).emulated_hooks(_load, _find)


def _with_ir(compile_ptx: Callable[..., str]) -> Callable[..., str]:
    def with_ir(text: str, target: Any) -> str:
        packed = base64.b64encode(zlib.compress(text.encode())).decode()
        return f"{compile_ptx(text, target)}\n{_MARK}{packed}\n"

    return with_ir


def _made_up(device: Any, target: Any) -> Any:  # noqa: ARG001
    from autotune.machine.profile import CacheLevel, DeviceProfile

    level = CacheLevel(
        name="memory", size_bytes=1 << 30, load_bytes_per_s=4e12, copy_bytes_per_s=2e12
    )
    return DeviceProfile(
        device="emulator", target=target, peak_flops=6e13, levels=(level,), parallel_region_s=5e-6
    )


@functools.cache
def _emulator() -> ctypes.CDLL:
    """That of the driver's library, which compiled code finds its functions in."""
    return ctypes.CDLL(LIBRARY)


@_Load
def _load(image: bytes) -> int:
    text = image.decode()
    found = text.rpartition(_MARK)[2].split()
    if ".entry" not in text or not found:
        return -1
    from autotune.codegen.base import Launch
    from tests import emulator

    emulator.compiled = _emulator
    ir = zlib.decompress(base64.b64decode(found[0])).decode()
    launches = [
        Launch(
            kernel=name, grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0,
            args=tuple(re.findall(r"%\w+", params)),
        )
        for name, params, _ in _KERNEL.findall(ir)
    ]  # fmt: skip
    _loaded.append((ir, emulator.Kernels(ir, launches)))
    return len(_loaded) - 1


@_Find
def _find(module: int, name: bytes, out: Any) -> int:
    ir, kernels = _loaded[module]
    for found, params, block in _KERNEL.findall(ir):
        if found == name.decode():
            given = params.split("%")[:-1]  # what is said of each
            out[0].code = kernels.address(found)
            out[0].args = len(given)
            out[0].maps = sum(1 << i for i, kind in enumerate(given) if "byval" in kind)
            out[0].block[:] = [int(n) for n in block.split(",")]
            return 0
    return 1
