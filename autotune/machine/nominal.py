"""Nominal speeds of a device that measured less than another. In: a target, its profile, and the
tables of configs/machines. Out: a nominal profile, nominal facts: what nobody knows stays None."""

from __future__ import annotations

from autotune.machine.curves import Curve
from autotune.machine.facts import Arithmetic, MachineFacts, Processor
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.machine.speeds import CpuSpeeds
from autotune.target import Target


def nominal_profile(target: Target, cpu: CpuSpeeds) -> DeviceProfile:
    """Speeds of a core of the target's width and caches."""
    # Registers are filled from the innermost cache as fast as two vectors a cycle, and from no
    # other level faster.
    most = 2.0 * target.vector_bytes
    levels = tuple(
        CacheLevel(name=name, size_bytes=size, load_bytes_per_s=min(speed, most) * cpu.clock_hz)
        for name, size, speed in (
            ("L1", target.l1_bytes, most),
            ("L2", target.l2_bytes, cpu.l2_stream_bytes_per_cycle),
            ("L3", target.l3_bytes, cpu.l3_stream_bytes_per_cycle),
            ("memory", 1 << 40, cpu.memory_stream_bytes_per_cycle),
        ) if size
    )  # fmt: skip
    peak = 2 * cpu.vector_multiply_adds_per_cycle * target.lanes() * cpu.clock_hz
    return DeviceProfile(
        device="nominal", target=target, peak_flops=peak, levels=levels,
        parallel_region_s=cpu.kernel_start_cycles / cpu.clock_hz,
    )  # fmt: skip


def nominal_facts(target: Target, profile: DeviceProfile, cpu: CpuSpeeds) -> MachineFacts:
    """What a profile without facts and the tables say, as facts."""
    loads, stores, copies = (_steps(profile, name) for name in ("load", "store", "copy"))
    threads = profile.target.threads
    regions = ((threads, profile.parallel_region_s),) if threads > 1 else ()
    widths = profile.width_peaks or ((target.vector_bytes, profile.peak_flops),)
    return MachineFacts(
        processor=Processor(
            vendor="unknown", family=None, model=None, stepping=None, brand="", llvm=target.cpu,
            abilities=(),
        ),
        cores=target.cores,
        clock_hz=cpu.clock_hz,
        arithmetic=tuple(
            row for width, peak in widths for row in _arithmetic(target, cpu, width, peak)
        ),
        add_latency_s=cpu.add_latency_cycles / cpu.clock_hz,
        broadcasts_per_s=cpu.broadcasts_per_cycle * cpu.clock_hz,
        load_curve=loads,
        store_curve=stores,
        copy_curve=copies,
        transfer_bytes_per_s=cpu.other_core_bytes_per_cycle * cpu.clock_hz,
        transfer_dirty_bytes_per_s=cpu.other_core_dirty_bytes_per_cycle * cpu.clock_hz,
        regions=regions,
    )  # fmt: skip


def _arithmetic(target: Target, cpu: CpuSpeeds, width: int, peak: float) -> tuple[Arithmetic, ...]:
    """Multiply-adds of a width, those of short operands by how many sum into a lane."""
    latency_s = cpu.multiply_adds_in_flight / cpu.vector_multiply_adds_per_cycle / cpu.clock_hz
    features = set(target.features.split(","))
    kinds = [("float32", "fma", 1.0)]
    if "+avx512bf16" in features:
        kinds.append(("bfloat16", "dpbf16ps", cpu.bf16_products_per_lane))
    if features & {"+avx512vnni", "+avxvnni"}:
        kinds.append(("int8", "vpdpbusd", cpu.int8_products_per_lane))
    return tuple(
        Arithmetic(
            kind=kind, instruction=name, vector_bytes=width,
            multiply_adds_per_s=products * peak / 2, latency_s=latency_s,
        )
        for kind, name, products in kinds
    )  # fmt: skip


def _steps(profile: DeviceProfile, moves: str) -> Curve:
    """A curve that is level within each level of the memory; empty where one was not measured."""
    points: list[tuple[int, float]] = []
    within = 0
    *caches, memory = profile.levels
    for level in caches:
        begin = within * 3 // 2 or level.size_bytes // 4
        sizes = sorted({min(begin, level.size_bytes), level.size_bytes})
        points += [(n, getattr(level, f"{moves}_bytes_per_s")) for n in sizes]
        within = level.size_bytes
    points.append((max(1, 2 * within), getattr(memory, f"{moves}_bytes_per_s")))
    return tuple(points) if all(value > 0 for _, value in points) else ()
