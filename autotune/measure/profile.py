"""What a device is capable of, measured on the core this runs on. In: a target. Out: a profile.

Multiply-add peak of a core, load bandwidth per cache level and from memory, cost of a parallel
region. Takes about a second.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator

from autotune.codegen import BACKENDS
from autotune.codegen.loader import load, load_text
from autotune.measure.kernels import (
    SWEEP_VECTORS,
    peak_data_bytes,
    peak_flops_per_round,
    peak_text,
    sweep_text,
)
from autotune.measure.storage import aligned_bytes
from autotune.measure.timing import median
from autotune.measure.types import CacheLevel, DeviceProfile
from autotune.program.ir import Buffer, Const, For, Program, Store, index
from autotune.target import Target

SAMPLE_S = 0.0005
"""Short samples: a few fall between the times when somebody else has the core."""
SAMPLES = 100
SWEEPS = 12
LARGE_BYTES = 4 << 20
LARGEST_SWEEP_BYTES = 256 << 20
CALIBRATION_S = 0.0003


class Calibration:
    """The fixed kernel that tells a disturbed moment from a quiet one."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._peak = PeakKernel(target, clock)
        self._rounds = self._peak.rounds_for(CALIBRATION_S)
        self.best_s = float("inf")
        self.read()

    def read(self) -> float:
        """Seconds of the kernel now, the faster of two."""
        taken_s = min(self._peak.run(self._rounds) for _ in range(2))
        self.best_s = min(self.best_s, taken_s)
        return taken_s


class PeakKernel:
    """Multiply-adds in registers, on the calling thread."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self._library = load_text(peak_text(target), target)
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            self._library.address("peak")
        )
        self._data = aligned_bytes(peak_data_bytes(target), 0)
        self._flops = peak_flops_per_round(target)
        self._clock = clock

    def run(self, rounds: int) -> float:
        """Seconds of this many rounds."""
        start = self._clock()
        self._call(self._data.ctypes.data, rounds)
        return self._clock() - start

    def rounds_for(self, seconds: float) -> int:
        """How many rounds take about that long."""
        rounds = 200
        taken = min(self.run(rounds) for _ in range(10))
        return max(1, int(rounds * seconds / max(taken, 1e-7)))

    def flops_per_s(self) -> float:
        """Peak, from the fastest of many short samples."""
        rounds = self.rounds_for(SAMPLE_S)
        return self._flops * rounds / min(self.run(rounds) for _ in range(SAMPLES))


def measure_profile(
    target: Target, device: str, clock: Callable[[], float] = time.perf_counter
) -> DeviceProfile:
    """Raises BuildError where the target's code cannot be built or loaded here."""
    return DeviceProfile(
        device=device,
        target=target,
        peak_flops=PeakKernel(target, clock).flops_per_s(),
        levels=_levels(target, clock),
        parallel_region_s=_parallel_region_s(target, clock),
    )


def _sizes(target: Target) -> Iterator[tuple[str, int, int]]:
    """(level, its size, bytes to sweep): half of each cache, and much more than the last for
    memory."""
    last = max(target.l2_bytes, target.l3_bytes)
    yield "L1", target.l1_bytes, target.l1_bytes // 2
    yield "L2", target.l2_bytes, target.l2_bytes // 2
    if target.l3_bytes > target.l2_bytes:
        yield "L3", target.l3_bytes, min(target.l3_bytes // 2, LARGEST_SWEEP_BYTES // 4)
    yield "memory", 0, min(max(4 * last, 64 << 20), LARGEST_SWEEP_BYTES)


def _levels(target: Target, clock: Callable[[], float]) -> tuple[CacheLevel, ...]:
    library = load_text(sweep_text(target), target)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address("sweep")
    )
    sizes = list(_sizes(target))
    data = aligned_bytes(max(count for _, _, count in sizes), 0)

    def sweep(blocks: int, passes: int) -> float:
        start = clock()
        call(data.ctypes.data, blocks, passes)
        return clock() - start

    levels = []
    for name, size, count in sizes:
        block = SWEEP_VECTORS * target.vector_bytes
        blocks = max(1, count // block)
        passes = max(1, int(SAMPLE_S / max(min(sweep(blocks, 1), sweep(blocks, 1)), 1e-7)))
        samples = SAMPLES if count < LARGE_BYTES else SWEEPS
        best_s = min(sweep(blocks, passes) for _ in range(samples))
        levels.append(
            CacheLevel(
                name=name,
                size_bytes=size,
                load_bytes_per_s=blocks * block * passes / best_s,
            )
        )
    return tuple(levels)


def _parallel_region_s(target: Target, clock: Callable[[], float]) -> float:
    """Opening and closing a parallel region around almost nothing; 0 on one thread."""
    if target.threads == 1:
        return 0.0
    cells = Buffer.dense("o0", "float32", (target.threads, 16), "param")
    store = Store("o0", (index("t"), index(0)), Const(1.0))
    program = Program("region", (cells,), (For("t", target.threads, "parallel", (store,)),))
    built = BACKENDS.get("llvm").build(program, target, "region")
    library = load([built.code], target)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("region_run"))
    data = aligned_bytes(target.threads * 64 + built.workspace_bytes, 0)
    arguments = (ctypes.c_void_p * 2)(data.ctypes.data, data.ctypes.data + target.threads * 64)

    def once() -> float:
        start = clock()
        run(ctypes.addressof(arguments), 1)
        return clock() - start

    for _ in range(20):
        once()
    return median([once() for _ in range(200)])
