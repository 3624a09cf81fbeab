"""Measurement of a device's profile. In: an open device and its target. Out: a profile.

Peak of multiply-adds, bandwidth of copies in its cache and in its memory, cost of a launch; and a
small kernel whose result shows that the device computes at all. The kernels are programs like any
other, so they serve every backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from autotune.codegen.base import DeviceCode, backend_for
from autotune.errors import DeviceError
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.devices.base import Device, DeviceFacts
from autotune.measure.devices.kernel import DeviceKernel
from autotune.measure.storage import GuardedTensor, place_dense
from autotune.measure.timing import calls_per_sample
from autotune.program.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    Index,
    IndexValue,
    Load,
    Program,
    Stmt,
    Store,
    fn,
    index,
)
from autotune.target import Target
from autotune.types import ITEM_BYTES

CHAINS = 8
"""Chains of multiply-adds of a thread: they hide the latency of each other."""
DEPTH = 512
"""Multiply-adds of a chain, in a launch."""
WIDTH = 4
"""Elements that one work item loads and stores at a time."""
SAMPLES = 5
"""Timings of which the shortest counts."""
MEMORY_BYTES = 64 << 20
"""Bytes copied at least to measure a device's memory."""
BEYOND = 8
"""What is copied in memory, in sizes of the cache: less of it is found there."""
SAMPLE_S = 0.005
"""Seconds of one timing."""


def try_device(device: Device, target: Target) -> None:
    """Raises DeviceError where a trivial kernel does not give what it must."""
    threads = min(32, target.max_threads)
    out = _param("o", (4, threads), written=True)
    value = IndexValue(index("b") * threads + index("t"), "float32")
    body = _bound(4, threads, Store("o", (index("b"), index("t")), value))
    kernel, storages = _kernel(device, target, body, out)
    kernel.launch()
    kernel.fetch("o", storages["o"])
    if not np.array_equal(storages["o"].view.reshape(-1), np.arange(4 * threads)):
        raise DeviceError(
            f"{device.describe().name} computes wrong results; restart it, or use another device"
        )


def measure_device(device: Device, target: Target) -> DeviceProfile:
    """The device's peaks; takes some tenths of a second."""
    facts = device.describe()
    cached = max(target.l2_bytes // 4, 1 << 16)
    beyond = max(MEMORY_BYTES, BEYOND * target.l2_bytes)
    sizes = {"L2": (target.l2_bytes, cached), "memory": (facts.memory_bytes, beyond)}
    launch_s = _launch_s(device, target)
    moved = {name: _copy(device, target, nbytes, launch_s) for name, (_, nbytes) in sizes.items()}
    levels = tuple(
        CacheLevel(
            name=name, size_bytes=size, load_bytes_per_s=moved[name],
            copy_bytes_per_s=moved[name] / 2,
        )
        for name, (size, _) in sizes.items()
    )  # fmt: skip
    return DeviceProfile(
        device=facts.name,
        target=fitted(target, facts),
        peak_flops=_peak_flops(device, target),
        levels=levels,
        parallel_region_s=launch_s,
    )


def fitted(target: Target, facts: DeviceFacts) -> Target:
    """The target with the limits of a device, so that spaces hold what it can run.

    Descriptions of OpenCL devices are general: what the device says goes. Those of GPUs that CUDA
    knows are of a generation: a smaller member of it has less."""
    units = facts.multiprocessors or target.multiprocessors
    threads = facts.max_threads or target.max_threads
    shared = facts.shared_bytes or target.shared_bytes
    if target.kind != "opencl":
        threads, shared = min(threads, target.max_threads), min(shared, target.shared_bytes)
    vector = facts.vector_bytes if facts.warp == 1 else 0
    return dataclasses.replace(
        target, cores=units, multiprocessors=units, max_threads=threads, shared_bytes=shared,
        warp=facts.warp or target.warp, vector_bytes=vector or target.vector_bytes,
    )  # fmt: skip


def _param(name: str, shape: tuple[int, ...], written: bool = False) -> Buffer:
    dense = Buffer.dense(name, "float32", shape, "param")
    return dataclasses.replace(dense, written=written)


def _bound(blocks: int, threads: int, *body: Stmt) -> Stmt:
    return For("b", blocks, "block.x", (For("t", threads, "thread.x", body),))


def _kernel(
    device: Device, target: Target, body: Stmt, *params: Buffer
) -> tuple[DeviceKernel, dict[str, GuardedTensor]]:
    program = Program(name="profile", params=params, body=(body,))
    code = backend_for(target).build(program, target, "profile").code
    storages = {p.name: place_dense(np.zeros(p.shape, np.float32)) for p in params}
    return DeviceKernel(device, DeviceCode.decode(code), storages), storages


def _best_s(kernel: DeviceKernel) -> float:
    """Seconds of a call, the fastest of some samples."""
    calls = calls_per_sample(min(kernel.run(1).wall_s for _ in range(2)), SAMPLE_S)
    return min(kernel.run(calls).wall_s for _ in range(SAMPLES)) / calls


def _copy(device: Device, target: Target, nbytes: int, launch_s: float) -> float:
    """Bytes read and written per second by a copy whose input and output are `nbytes` together."""
    threads = min(256, target.max_threads)
    chunk = threads * WIDTH
    blocks = max(1, nbytes // 2 // (chunk * ITEM_BYTES["float32"]))
    at = (index("b") * chunk + index("t") * WIDTH + index("v"),)
    body = _bound(blocks, threads, For("v", WIDTH, "vector", (Store("o", at, Load("i", at)),)))
    shape = (blocks * chunk,)
    kernel, _ = _kernel(device, target, body, _param("i", shape), _param("o", shape, written=True))
    taken_s = _best_s(kernel)
    return 2 * blocks * chunk * ITEM_BYTES["float32"] / max(taken_s - launch_s, taken_s / 2)


def _peak_flops(device: Device, target: Target) -> float:
    """Multiply-adds in registers, all processors busy."""
    threads, blocks = min(256, target.max_threads), 8 * target.multiprocessors
    width = WIDTH if target.warp == 1 else 1
    held = Buffer.dense("acc", "float32", (CHAINS * width,), "register")

    def each(suffix: str, make: Callable[[str, str], Store]) -> Stmt:
        c, v = f"c{suffix}", f"v{suffix}"
        return For(c, CHAINS, "unroll", (For(v, width, "vector", (make(c, v),)),))

    def at(c: str, v: str) -> tuple[Index, ...]:
        return (index(c) * width + index(v),)

    first = each(
        "0", lambda c, v: Store("acc", at(c, v), IndexValue(index("t") + index(c), "float32"))
    )
    factor = Const(1e-3)
    step = each(
        "1", lambda c, v: Store("acc", at(c, v), fn("mul", Load("acc", at(c, v)), factor), "sum")
    )
    here = (index("b"), index("t"))
    last = each("2", lambda c, v: Store("o", (*here, index(v)), Load("acc", at(c, v)), "sum"))
    loop = For("k", DEPTH, "serial", (step,))
    body = _bound(blocks, threads, Alloc(held, (first, loop, last)))
    kernel, _ = _kernel(device, target, body, _param("o", (blocks, threads, width), written=True))
    flops = 2 * blocks * threads * DEPTH * CHAINS * width
    return flops / _best_s(kernel)


def _launch_s(device: Device, target: Target) -> float:
    """What a launch costs that does next to nothing."""
    store = Store("o", (index("b") + index("t"),), Const(1.0))
    kernel, _ = _kernel(device, target, _bound(1, 1, store), _param("o", (1,), written=True))
    return _best_s(kernel)
