"""A machine with everything that can be known of one, and a profile of an earlier release."""

from __future__ import annotations

from pathlib import Path

from autotune.machine.facts import TILE_BYTES, Arithmetic, MachineFacts, Processor, Scattered
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.target import load_target

KIB, MIB = 1 << 10, 1 << 20
RECORDED = Path(__file__).parent / "granite_rapids_profile.json"
"""Of a virtual machine, measured before there were facts."""
FACTS = MachineFacts(
    processor=Processor(
        vendor="GenuineIntel", family=6, model=173, stepping=None, brand="A (R) CPU",
        llvm="rocketlake", abilities=("amx-tile", "avx512f"), said_hz=2.7e9,
    ),
    cores=2,
    caches=((1, 32 << 10), (2, 1 << 20), (3, 32 << 20)),
    clock_hz=4e9,
    clocks=((32, 4e9), (64, 3.8e9)),
    arithmetic=(
        Arithmetic(kind="float32", instruction="fma", vector_bytes=32,
                   multiply_adds_per_s=6.4e10, latency_s=1e-9),
        Arithmetic(kind="float32", instruction="fma", vector_bytes=64,
                   multiply_adds_per_s=1.2e11, latency_s=1e-9),
        Arithmetic(kind="bfloat16", instruction="dpbf16ps", vector_bytes=64,
                   multiply_adds_per_s=6e10, latency_s=2e-9),
        Arithmetic(kind="bfloat16", instruction="tdpbf16ps", vector_bytes=TILE_BYTES,
                   multiply_adds_per_s=1.8e12, latency_s=1.3e-8),
    ),
    add_latency_s=5e-10,
    loads=((32, 8e9), (64, 8e9)),
    stores=((32, 8e9), (64, 4e9)),
    broadcasts_per_s=8e9,
    gathers_per_s=4e9,
    additions_beside=0.5,
    lone_line=0.25,
    load_curve=((4 * KIB, 4e11), (32 * KIB, 4e11), (64 * KIB, 2e11), (2 * MIB, 2e11),
                (4 * MIB, 3e10), (64 * MIB, 3e10), (256 * MIB, 1e10)),
    store_curve=((4 * KIB, 2e11), (256 * MIB, 1e10)),
    copy_curve=((4 * KIB, 2e11), (256 * MIB, 5e9)),
    load_curve_all=((8 * MIB, 5e10), (256 * MIB, 1.5e10)),
    latency_curve=((8 * KIB, 1.2e-9), (64 * MIB, 1e-7)),
    page_curve=((64, 0.0), (4096, 1e-8)),
    scattered=(Scattered(footprint=256 * MIB, near_s=2e-9, far_s=1.2e-8, prefetched_s=7e-9),),
    in_order=(Scattered(footprint=256 * MIB, near_s=3e-9, far_s=9e-9, prefetched_s=7e-9),),
    transfer_s=4e-8,
    transfer_bytes_per_s=8e10,
    transfer_dirty_bytes_per_s=4e10,
    regions=((2, 5e-7), (8, 2e-6)),
    denormal_s=4e-8,
    others=0.05,
)  # fmt: skip
TARGET = load_target("x86-64-v4")
PROFILE = DeviceProfile(
    device="there/rocketlake",
    target=TARGET,
    peak_flops=2.4e11,
    levels=(
        CacheLevel(name="L1", size_bytes=32 * KIB, load_bytes_per_s=4e11),
        CacheLevel(name="memory", size_bytes=0, load_bytes_per_s=1e10),
    ),
    parallel_region_s=0.0,
    width_peaks=((64, 2.4e11),),
    facts=FACTS,
)
