"""Tables of speeds. In: TOML of configs/machines: a section per field, its unit and source. Out:
frozen values.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, TypeVar

from autotune.errors import TargetError

SOURCES = ("measured", "fitted", "specified", "assumed")
"""Where a table's value is from."""
_ENTRY = ("value", "unit", "source", "by")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpeeds:
    """Speeds of a core. Units and sources stand in configs/machines."""

    clock_hz: float
    vector_multiply_adds_per_cycle: float
    """Full-width multiply-adds at the peak."""
    strip_flops_per_cycle: float
    """Float operations of image layers, as the pass that cuts them into strips expects them."""
    multiply_adds_in_flight: float
    """Independent vectors of multiply-adds that hide the latency of one."""
    multiply_adds_per_clock: float
    """Full-width multiply-adds in a clock of the core: the cycles that priors count in are those
    of one."""
    additions_beside: float
    """Vector additions that go beside each multiply-add without taking its place."""
    l1_store_bytes_per_cycle: float
    """Results that are written where the innermost cache has them."""
    l2_store_bytes_per_cycle: float
    l3_store_bytes_per_cycle: float
    paired_line_waste: float
    """Share of a line that comes in vain beside each that is needed: caches fetch pairs."""
    broadcasts_per_cycle: float
    """Elements loaded into all lanes of a register."""
    dispatched_per_clock: float
    """Micro-operations that a clock begins."""
    dispatched_per_load: float
    """Micro-operations of a vector's load."""
    instructions_in_flight: float
    """Instructions that the core looks at: short chains of several tiles run side by side."""
    decoded_instructions: float
    """Instructions of an unrolled body that the decoded-instruction cache holds with ease."""
    add_latency_cycles: float
    """From an addition or maximum to the next that needs it."""
    line_bytes: int
    l1_ways: int
    l1_way_bytes: int
    """Addresses so far apart fall into one set of the innermost cache."""
    l2_stream_bytes_per_cycle: float
    """Operands that come in beside multiply-adds."""
    l3_stream_bytes_per_cycle: float
    memory_stream_bytes_per_cycle: float
    """Bandwidth of main memory, all cores together; bytes per cycle."""
    l2_pass_bytes_per_cycle: float
    """Rows that are read in order, which a prefetcher follows."""
    l3_pass_bytes_per_cycle: float
    l2_written_pass_bytes_per_cycle: float
    """Rows that are written in order."""
    l3_written_pass_bytes_per_cycle: float
    l3_strip_bytes_per_cycle: float
    """Results between layers that lie in the shared cache."""
    memory_strip_bytes_per_cycle: float
    """The same in memory."""
    other_core_bytes_per_cycle: float
    """From the cache of another core, which may be on another die."""
    other_core_dirty_bytes_per_cycle: float
    """The same of what that core has just written, and may be on its way to writing."""
    contended_memory_factor: float
    """Times that data come from memory which all cores need, each at its own pace."""
    hidden_stream: float
    """Share of the shorter of arithmetic and a stream of operands that the longer one hides, where
    the hardware foresees the stream; below 0 where both together take longer than one by one."""
    hidden_asked_stream: float
    """The same where prefetch instructions ask for the stream ahead of time."""
    own_share_of_l2: float
    """Share of the second cache that data which are read again may take."""
    own_share_of_l3: float
    """Share of the last cache that is really ours."""
    own_caches_in_l3: float
    """The shared cache in sizes of a core's own: what is larger lies in memory."""
    cold_code_bytes_per_cycle: float
    """Machine code that other kernels have driven from the caches."""
    kernel_start_cycles: float
    """The ends of a kernel: short loops, threads that wait for each other."""
    bf16_products_per_lane: float
    """Products summed into 32-bit lanes, over multiply-adds of float32, both at the peak."""
    int8_products_per_lane: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowCoreSpeeds:
    """What else is so of a core whose vectors have 128 bits. Cycles are those of one multiply-add,
    of which a clock has several."""

    clock_hz: float
    vector_multiply_adds_per_cycle: float
    multiply_adds_per_clock: float
    multiply_adds_in_flight: float
    additions_beside: float
    broadcasts_per_cycle: float
    dispatched_per_clock: float
    dispatched_per_load: float
    l2_stream_bytes_per_cycle: float
    l3_stream_bytes_per_cycle: float
    memory_stream_bytes_per_cycle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCoreSpeeds:
    """What else is so of a core with matrix tiles: products over multiply-adds of float32."""

    bf16_products_per_lane: float
    int8_products_per_lane: float
    amx_bf16_products_per_lane: float
    amx_int8_products_per_lane: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpeeds:
    """Speeds of a multiprocessor. Units and sources stand in configs/machines."""

    threads_held: float
    blocks_held: float
    reserved_shared_bytes: int
    """Shared memory that CUDA takes for itself per block; no block may ask for the last ones."""
    multiply_adds_per_cycle: float
    warp_matrix_multiply_adds_per_cycle: float
    """Multiply-adds per multiprocessor and cycle by `mma`, the tensor cores' instruction for a
    warp."""
    group_matrix_multiply_adds_per_cycle: float
    """Multiply-adds per multiprocessor and cycle by `wgmma`, for groups of four warps."""
    add_latency_cycles: float
    warp_instructions_per_cycle: float
    shared_words_per_cycle: float
    l1_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    global_bytes_per_cycle: float
    """Global-memory bandwidth per multiprocessor, all of them loading; bytes per cycle."""
    sector_bytes: float
    """The least that is read from global memory."""
    global_latency_cycles: float
    loads_in_flight: float
    """Loads of a thread that are on their way at a time."""
    launch_cycles: float
    """What a launch takes by itself."""
    block_start_cycles: float
    """What a multiprocessor takes to be given a block."""
    warp_sum_cycles: float
    """Adding up what the threads of a warp have."""
    barrier_cycles: float
    """Several warps meet, and pass on what they have."""


Speeds = TypeVar("Speeds", CpuSpeeds, GpuSpeeds, TileCoreSpeeds, NarrowCoreSpeeds)


@functools.cache
def shipped_speeds() -> tuple[CpuSpeeds, GpuSpeeds]:
    """The speeds of configs/machines; the same text is read once."""
    folder = resources.files("autotune.configs.machines")
    cpu, gpu = ((folder / f"{n}.toml").read_text(encoding="utf-8") for n in ("zen4", "gpu"))
    return parse_speeds(CpuSpeeds, cpu, "zen4.toml"), parse_speeds(GpuSpeeds, gpu, "gpu.toml")


@functools.cache
def shipped_tile_speeds() -> TileCoreSpeeds:
    """The speeds of configs/machines that hold for cores with matrix tiles."""
    file = resources.files("autotune.configs.machines") / "granite_rapids.toml"
    return parse_speeds(TileCoreSpeeds, file.read_text(encoding="utf-8"), file.name)


def of_width(speeds: NarrowCoreSpeeds, granules: int) -> dict[str, Any]:
    """A core's speeds where a multiply-add has so many times 128 bits: so many fewer are done in a
    clock, and more loaded beside each."""
    known = dataclasses.asdict(speeds)
    for name in known:
        if "multiply_adds" in name:
            known[name] /= granules
        elif name == "broadcasts_per_cycle" or name.endswith("stream_bytes_per_cycle"):
            known[name] *= granules
    return known


@functools.cache
def shipped_narrow_speeds(cpu: str) -> NarrowCoreSpeeds | None:
    """Those of a core by LLVM's name, or of any that runs WebAssembly; None where configs/machines
    has no table of it."""
    file = resources.files("autotune.configs.machines") / f"{cpu.replace('-', '_')}.toml"
    if not file.is_file():
        return None
    return parse_speeds(NarrowCoreSpeeds, file.read_text(encoding="utf-8"), file.name)


def parse_speeds(kind: type[Speeds], text: str, source: str) -> Speeds:
    """Speeds from TOML text: a section per field. Raises TargetError naming `source`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{source}: not TOML: {error}") from None
    named = {f.name for f in fields(kind)}
    for what, keys in (("unknown", data.keys() - named), ("missing", named - data.keys())):
        if keys:
            raise TargetError(f"{source}: {what} key {', '.join(sorted(keys))}")
    return kind(**{name: _value(f"{source}: {name}", entry) for name, entry in data.items()})


def _value(where: str, entry: Mapping[str, Any]) -> Any:
    """The number of an entry that says what it is and where it is from."""
    if not isinstance(entry, dict) or sorted(entry) != sorted(_ENTRY):
        raise TargetError(f"{where}: expected the keys {', '.join(_ENTRY)}")
    value, source = entry["value"], entry["source"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise TargetError(f"{where}: expected a positive number, got {value!r}")
    if source not in SOURCES or not all(
        isinstance(entry[k], str) and entry[k] for k in _ENTRY[1:]
    ):
        raise TargetError(f"{where}: unit and by are texts, source is one of {', '.join(SOURCES)}")
    return value
