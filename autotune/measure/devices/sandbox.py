"""Wider bounds of a sandbox for devices, compilers and matrix tiles. In: a target and bounds. Out:
the bounds with what a worker for that target needs besides.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autotune.measure.sandbox import Sandbox
from autotune.target import Target

DEVICE_FILES = ("nvidia*", "nvidia-caps/*", "nvidia-uvm*", "dri/*", "kfd", "dxg")
"""Below /dev: what drivers open to write."""
THREAD_NAMES = "/proc/self/task"
"""NVIDIA's driver names its threads (`task/ID/comm`), and does not start where it cannot."""


def sandbox_for(target: Target, sandbox: Sandbox) -> Sandbox:
    """C and OpenCL code is compiled by other programs, WebAssembly run by one, which reserves
    addresses without end. A GPU's driver writes to its device files and maps far more addresses
    than there is memory."""
    if target.is_wasm:
        return dataclasses.replace(sandbox, programs=True, memory_bytes=0)
    if target.kind == "c":
        return dataclasses.replace(sandbox, programs=True)
    if target.kind == "opencl":
        wide = dataclasses.replace(sandbox, programs=True)
        return _with_devices(wide) if device_files() else wide
    if target.kind == "cuda":
        return _with_devices(sandbox)
    return dataclasses.replace(sandbox, tiles=True) if target.has_tiles else sandbox


def _with_devices(sandbox: Sandbox) -> Sandbox:
    written = (*device_files(), THREAD_NAMES)
    return dataclasses.replace(sandbox, devices=written, memory_bytes=0)


def device_files() -> tuple[str, ...]:
    """Files of GPUs on this machine."""
    found = {str(path) for pattern in DEVICE_FILES for path in Path("/dev").glob(pattern)}
    return tuple(sorted(found))
