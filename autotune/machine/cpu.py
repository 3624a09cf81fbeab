"""Parts of a predicted time on CPUs: streams of bytes, ports, tails, threads, cache conflicts.

In: a machine, and bytes, extents or tiles of many configs. Out: cycles, or shares of them.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from autotune.machine.speeds import CpuSpeeds
from autotune.machine.value import Column, Machine
from autotune.target import Target

RUNS = (4, 2)
"""Neighbours that one load may take for multiply-adds by lanes of a register, the most first."""
RUN_LANES = 4
"""Lanes of the vectors that such multiply-adds take any one of."""
SCALABLE_BROADCAST = 2.0
"""Multiply-adds in whose place an element is put into all lanes of a scalable vector (by LLVM's
model of Neoverse V1: tiles of 7 x 3 reach 55 to 75 %)."""
PREFETCH_LOADS = 1.0
"""Loads whose place a prefetch takes (specified: it goes through a load port)."""
LOOP_INSTRUCTIONS = 3.0
"""Instructions of a reduction's counter, branch and pointers (assumed)."""
ENGINE_LOOP_INSTRUCTIONS = 7.0
"""The same of WebAssembly, whose engines ask in every iteration whether to stop (V8 on x86-64)."""

# ------------------------------------------------------------------------------------------ ports


LATENCY_NORM = 6.0
"""Norm of multiply-adds and of their latency: with hardly more of them than hide it, some are late
(fitted: tiles of 8 to 12 accumulators on a core with AVX2)."""


def outer_product_cycles(
    machine: Machine, points: Column, vectors: Column, share: Column | float,
    unroll: Column | int = 1,
) -> Column:  # fmt: skip
    """Cycles of one step of a reduction into a register tile of `points` x `vectors`: its
    multiply-adds, no fewer than hide the latency of one, the loads of vectors and of points, or
    all of its instructions where loads are some of them. `share`: of a full-width vector's lanes;
    `unroll`: steps that are written out."""
    cpu = machine.cpu
    work = points * vectors * share
    lanes = np.asarray(share * machine.target.lanes())
    each = points / run_widths(machine.target, points, vectors, unroll, lanes)
    if machine.target.sve_granules:
        work = work + np.where(lanes > RUN_LANES, SCALABLE_BROADCAST * points, 0.0)
    loads = vectors * share + each / cpu.broadcasts_per_cycle
    latency = cpu.multiply_adds_in_flight * share
    if not (machine.target.takes_lanes or machine.target.is_wasm):
        busy = (work**LATENCY_NORM + latency**LATENCY_NORM) ** (1 / LATENCY_NORM)
        return np.maximum(busy, loads)
    # What is late there is counted by what is dispatched.
    cycles = np.maximum(np.maximum(work, latency), loads)
    begun = ENGINE_LOOP_INSTRUCTIONS if machine.target.is_wasm else LOOP_INSTRUCTIONS
    products = points * vectors * (2 if adds_apart(machine.target) else 1)
    loops = begun / np.asarray(unroll)
    dispatched = products + cpu.dispatched_per_load * (vectors + each) + loops
    return np.maximum(cycles, clocks(machine, 1) * dispatched / cpu.dispatched_per_clock)


def adds_apart(target: Target) -> bool:
    """Whether a multiply-add of vectors is two instructions, with the product in a register of its
    own between them."""
    return target.is_wasm and "+relaxed-simd" not in target.features.split(",")


def run_widths(
    target: Target, points: Column, vectors: Column, unroll: Column | int, lanes: Column | int
) -> Column:
    """Neighbours along the reduction that a load takes for a point: where multiply-adds of vectors
    of so many lanes take any of these, as many as are written out, if their registers fit beside
    the sums, and one for what is on its way."""
    held = points * vectors + points + vectors + 1
    fits = (held <= target.vector_registers) & (lanes == RUN_LANES) & target.takes_lanes
    wide = np.ones(np.broadcast(points, unroll).shape)
    for width in reversed(RUNS):
        wide = np.where(np.asarray(unroll) % width == 0, width, wide)
    return np.where(fits, wide, 1)


# ------------------------------------------------------------------------------------------ bytes


def stream_cycles(machine: Machine, nbytes: float, passes: Column) -> Column:
    """Cycles of all cores while operands come in: from memory first, in a model, then from the
    cache that they fit into. Those of a single pass are shared among the cores."""
    threads = machine.target.threads
    contended = machine.cpu.contended_memory_factor
    shared = np.where((passes == 1) | (threads == 1), 1.0, contended)
    first = nbytes / machine.first_stream_bytes_per_cycle(nbytes) * shared
    again = np.ceil(passes / threads) - 1
    return np.asarray(threads * (first + again * nbytes / stream_speed(machine, nbytes)))


def overlapped(arithmetic: Column, stream: Column | float, hidden: float) -> Column:
    """Cycles of arithmetic with a stream of operands: the longer one, and what it does not hide of
    the shorter."""
    both = np.maximum(arithmetic, stream)
    return np.asarray(both + (1 - hidden) * np.minimum(arithmetic, stream))


def asking_cycles(machine: Machine, nbytes: Column | float) -> Column:
    """Cycles of prefetches of so many bytes, a line each."""
    asked = np.asarray(nbytes) / machine.cpu.line_bytes
    return asked * PREFETCH_LOADS / machine.cpu.broadcasts_per_cycle


def stream_speed(machine: Machine, nbytes: float) -> float:
    """Bytes a cycle at which a core reads operands of this size, over and over."""
    target, cpu = machine.target, machine.cpu
    if nbytes <= machine.l2_bytes * cpu.own_share_of_l2:
        return cpu.l2_stream_bytes_per_cycle
    if not beyond_l3(machine, nbytes):
        return cpu.l3_stream_bytes_per_cycle
    return cpu.memory_stream_bytes_per_cycle / target.threads


def store_cycles(machine: Machine, held: Column | float) -> Column:
    """Cycles to write a vector of results over and over to `held` bytes."""
    cpu, target = machine.cpu, machine.target
    speed = np.where(
        held <= machine.l1_bytes,
        cpu.l1_store_bytes_per_cycle,
        np.where(
            held <= machine.l2_bytes, cpu.l2_store_bytes_per_cycle, cpu.l3_store_bytes_per_cycle
        ),
    )
    return np.asarray(target.vector_bytes / speed)


def clocks(machine: Machine, count: float) -> float:
    """Cycles of one full-width multiply-add in so many clocks of the core."""
    return count * machine.cpu.multiply_adds_per_clock


def beyond_l2(machine: Machine, nbytes: float) -> bool:
    """Whether data are larger than what the second cache keeps for them."""
    return nbytes > machine.l2_bytes * machine.cpu.own_share_of_l2


def beyond_l3(machine: Machine, nbytes: float) -> bool:
    """Whether data are larger than what the last cache keeps for them."""
    return nbytes > machine.l3_bytes * machine.cpu.own_share_of_l3


def from_others_cycles(machine: Machine, nbytes: Column | float) -> Column | float:
    """Cycles of each core for its share of so many bytes, if others hold theirs of them."""
    return nbytes * (1 - 1 / machine.target.threads) / machine.cpu.other_core_bytes_per_cycle


def from_writers_cycles(machine: Machine, nbytes: Column | float) -> Column | float:
    """Cycles of each core for its share of so many bytes, if others have just written theirs."""
    far = nbytes * (1 - 1 / machine.target.threads)
    return far / machine.cpu.other_core_dirty_bytes_per_cycle


def cold_code_cycles(machine: Machine, nbytes: Column) -> Column:
    """Cycles until machine code has come that other kernels have driven from the caches."""
    return nbytes / machine.cpu.cold_code_bytes_per_cycle


def l3_seconds(machine: Machine, nbytes: float) -> float:
    """Seconds of one core for bytes that come from the shared cache, at the table's clock."""
    return nbytes / (machine.cpu.l3_stream_bytes_per_cycle * machine.cpu.clock_hz)


def core_seconds(machine: Machine, flops: float, nbytes: float) -> float:
    """Least seconds of one core for so many operations, and bytes from the shared cache: only the
    order that it gives matters, where neither schedule nor device is known yet."""
    return max(flops / machine.profile.peak_flops, l3_seconds(machine, nbytes))


# ------------------------------------------------------------------------------------------ strips


def strip_cycles(speeds: CpuSpeeds, flops: float) -> float:
    """Cycles of a core for operations of image layers."""
    return flops / speeds.strip_flops_per_cycle


def strip_stream_cycles(speeds: CpuSpeeds, nbytes: int, own_bytes: int) -> float:
    """Cycles to write or read a value between image layers that a core's own cache of `own_bytes`
    does not hold."""
    if nbytes > speeds.own_caches_in_l3 * own_bytes:
        return nbytes / speeds.memory_strip_bytes_per_cycle
    return nbytes / speeds.l3_strip_bytes_per_cycle


def strip_start_cycles(speeds: CpuSpeeds, kernels: int, weight_bytes: int) -> float:
    """Cycles that another strip begins with: its kernels' ends, and their weights again."""
    starts = kernels * speeds.kernel_start_cycles
    return starts + weight_bytes / speeds.l3_strip_bytes_per_cycle


# ------------------------------------------------------------------------------ threads and tails


def busiest_share(chunks: Column, threads: int) -> Column:
    """Time of the busiest thread over the time of a single one that has all the chunks."""
    return np.asarray(np.ceil(chunks / threads) / np.maximum(chunks, 1), np.float64)


def imbalance(chunks: Column, threads: int) -> Column:
    """Time of the busiest thread over the mean when `chunks` equal pieces are shared."""
    return busiest_share(np.maximum(chunks, 1.0), threads) * threads


def tail_waste(extent: Column | int, size: Column) -> Column:
    """Time of tiles along an axis over that of whole ones: a tail of less than half a tile has too
    few accumulators to hide the latency."""
    tail = extent % size
    lost = np.where((tail > 0) & (tail < size / 2), size / 2 - tail, 0)
    return np.asarray(1 + lost / extent, np.float64)


def tail_latency(machine: Machine, extent: Column, size: Column, vectors: Column) -> Column:
    """The same of tiles of so many vectors, by the multiply-adds that hide the latency on this
    machine."""
    tail = extent % size
    needed = machine.cpu.multiply_adds_in_flight / vectors
    return np.asarray(1 + np.where(tail > 0, np.maximum(needed - tail, 0), 0) / extent)


def padding_waste(extent: int, size: Column) -> Column:
    """Elements that whole blocks of this size have, over those that there are."""
    return np.asarray(np.ceil(extent / size) * size / extent, np.float64)


# ------------------------------------------------------------------------------------------ cache


def conflict_free_points(machine: Machine, step: int) -> float:
    """Points side by side, `step` 4-byte elements apart, whose data do not evict each other from
    the innermost cache: addresses a multiple of a way apart all fall into one set."""
    cpu = machine.cpu
    way = cpu.l1_way_bytes
    return float(cpu.l1_ways) * way / math.gcd(max(1, step) * 4, way)


def sets_met(target: Target, step_bytes: int) -> int:
    """Sets of the target's innermost cache in which data lie that begin so many bytes apart."""
    way = max(target.line_bytes, target.l1_bytes // target.l1_ways)
    return way // math.gcd(step_bytes, way)


def evicted_share(
    machine: Machine,
    step: int,
    rows: Column | float,
    span: Column | float,
    *,
    apart: int = 0,
    points: Column | float = 1,
) -> Column:
    """Share of data that evict each other from the innermost cache: of so many rows that begin
    `step` bytes apart, of so many points of each that begin `apart` bytes apart, `span` bytes."""
    given = np.broadcast_arrays(np.atleast_1d(rows), points, span)  # may be the same for all
    kinds, places = np.unique(np.stack(given), axis=1, return_inverse=True)
    cache = (machine.cpu.l1_ways, machine.cpu.l1_way_bytes, machine.cpu.line_bytes)
    shares = [
        _evicted(cache, (step, int(high)), (apart, int(wide)), math.ceil(size))
        for high, wide, size in kinds.T
    ]
    return np.asarray(shares, np.float64)[places.reshape(-1)]


@functools.cache
def _evicted(
    cache: tuple[int, int, int], rows: tuple[int, int], points: tuple[int, int], span: int
) -> float:
    (step, high), (apart, wide), (ways, way, line) = rows, points, cache
    sets = way // line
    begins = np.add.outer(np.arange(high) * step, np.arange(wide) * apart).reshape(-1, 1)
    ends = begins + max(1, span) - 1
    lines = begins // line + np.arange(max(1, span) // line + 2)
    touched = np.zeros((lines.max() // sets + 1) * sets, np.bool_)
    touched[lines[lines <= ends // line]] = True
    held = touched.reshape(-1, sets).sum(axis=0)
    return float(held[held > ways].sum() / held.sum())
