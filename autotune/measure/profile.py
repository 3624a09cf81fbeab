"""Measurement of a CPU's profile on the core that this runs on. In: a target. Out: a profile.

Multiply-add peak of a core per vector width, load, store and copy bandwidth per cache level and of
memory, cost of a parallel region. Takes about two seconds.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable
from statistics import median

from autotune.codegen import BACKENDS
from autotune.codegen.llvm.backend import load_text
from autotune.codegen.loader import load
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.facts.texts import passes_text
from autotune.measure.kernels import (
    SWEEP_VECTORS,
    peak_data_bytes,
    peak_flops_per_round,
    peak_text,
    sweep_text,
)
from autotune.measure.plain import swept_sizes
from autotune.measure.storage import aligned_bytes
from autotune.program.ir import Buffer, Const, For, Program, Store, index
from autotune.target import Target

SAMPLE_S = 0.0005
"""Short samples: a few fall between the times when somebody else has the core."""
SAMPLES = 100
"""Timings of which the shortest counts."""
SWEEPS = 12
"""The same of sweeps over much data, which take long."""
LARGE_BYTES = 4 << 20
"""Bytes from which on a sweep does."""
LARGEST_SWEEP_BYTES = 256 << 20
"""Bytes of a sweep, at most."""
CALIBRATION_S = 0.0003
"""Seconds of the calibration kernel."""


class CalibrationKernel:
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
    peak_flops = PeakKernel(target, clock).flops_per_s()
    return DeviceProfile(
        device=device,
        target=target,
        peak_flops=peak_flops,
        levels=_levels(target, clock),
        parallel_region_s=parallel_region_s(target, clock),
        width_peaks=_width_peaks(target, peak_flops, clock),
    )


def profile_lines(profile: DeviceProfile) -> tuple[str, ...]:
    """A profile as text for people, a line per thing."""
    widths = ", ".join(f"{8 * w} bits {peak / 1e9:.1f}" for w, peak in profile.width_peaks)
    lines = [
        f"peak    {profile.peak_flops / 1e9:.1f} GFLOP/s per core"
        + (f" ({widths})" if widths else "")
    ]
    for level in profile.levels:
        size = f"{level.size_bytes >> 10} KiB, " if level.size_bytes else ""
        lines.append(
            f"{level.name:<7} {size}load {level.load_bytes_per_s / 1e9:.1f}, "
            f"store {level.store_bytes_per_s / 1e9:.1f}, "
            f"copy {level.copy_bytes_per_s / 1e9:.1f} GB/s"
        )
    region = f"{profile.parallel_region_s * 1e6:.2f} us" if profile.parallel_region_s else "unused"
    return (*lines, f"region  {region}")


def _width_peaks(
    target: Target, widest: float, clock: Callable[[], float]
) -> tuple[tuple[int, float], ...]:
    """(vector bytes, peak) per width; the target's own was measured already."""
    widths = [w for w in (16, 32, 64) if w < target.vector_bytes]
    narrow = [dataclasses.replace(target, vector_bytes=w) for w in widths]
    peaks = [(t.vector_bytes, PeakKernel(t, clock).flops_per_s()) for t in narrow]
    return (*peaks, (target.vector_bytes, widest))


def _levels(target: Target, clock: Callable[[], float]) -> tuple[CacheLevel, ...]:
    moved = {name: passes_text(name, target.vector_bytes, name) for name in ("store", "copy")}
    texts = {"sweep": sweep_text(target), **moved}
    library = load_text("\n".join(texts.values()), target)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    calls = {name: kind(library.address(name)) for name in texts}
    sizes = list(swept_sizes(target, 64 << 20, LARGEST_SWEEP_BYTES))
    data = aligned_bytes(max(count for _, _, count in sizes), 0)
    block = SWEEP_VECTORS * target.vector_bytes

    def bytes_per_s(name: str, count: int) -> float:
        """Bytes that move in a second, of a range of `count` bytes."""

        def once(passes: int) -> float:
            start = clock()
            calls[name](data.ctypes.data, blocks, passes)
            return clock() - start

        blocks = max(1, count // block // (2 if name == "copy" else 1))
        passes = max(1, int(SAMPLE_S / max(min(once(1), once(1)), 1e-7)))
        samples = SAMPLES if count < LARGE_BYTES else SWEEPS
        best_s = min(once(passes) for _ in range(samples))
        return blocks * block * passes / best_s

    return tuple(
        CacheLevel(
            name=name,
            size_bytes=size,
            load_bytes_per_s=bytes_per_s("sweep", count),
            store_bytes_per_s=bytes_per_s("store", count),
            copy_bytes_per_s=bytes_per_s("copy", count),
        )
        for name, size, count in sizes
    )


def parallel_region_s(target: Target, clock: Callable[[], float]) -> float:
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
