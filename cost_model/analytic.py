"""The analytical prior: predicted seconds of a config from what its device can do.

In: the tile structure of many configs and the machine. Out: seconds per call, one per config, and
the parts they are made of.

A call takes about as long as the slowest of: its arithmetic (points computed in vain included,
and slowed where the accumulators are too few to hide the multiply-add's latency, or too many for
the register file), the loads of the register tile, and the traffic of each memory level at its
measured bandwidth. Uneven chunks leave threads idle.

A rule whose prior tells the time knows better, because its algorithm is not the nest that the
structure shows: the prediction is then the prior's. Where the prior counts work, each sees what
the other does not, and the prediction is the mean of both, by ratio (see `Prior.means`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import imbalance
from cost_model.footprint import Memory, Traffic, count, memory_of, traffic
from search_spaces.base import Access, Column, Prior, TileStructure

_NORM = 4.0
"""Parts are combined by this norm: near their maximum, yet a better second part still counts
(chosen, as 2 would be a sum and infinity the maximum)."""
_LOOP_INSTRUCTIONS = 6.0
"""Counters, addresses and the branch of one iteration around the register tile (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of each part, per config; `seconds` is the prediction."""

    seconds: Column
    compute_s: Column
    issue_s: Column
    memory_s: tuple[Column, ...]
    """One per slot of the hierarchy, innermost first."""
    imbalance: Column
    """Time of the busiest thread over the mean, >= 1."""
    traffic: Traffic


def estimate(structure: TileStructure, machine: Machine, prior: Prior | None = None) -> Estimate:
    """Predicted seconds of every config of the structure."""
    profile = machine.profile
    memory = memory_of(profile)
    moved = traffic(structure, memory)
    threads = float(profile.target.threads)
    lanes = float(profile.target.lanes())
    rate = profile.peak_flops / (2 * lanes)
    balance = imbalance(structure.parallel_chunks, profile.target.threads)
    compute = _compute(structure, machine) * balance / threads
    issue = _instructions(structure, moved, lanes) / rate * balance / threads
    levels = _levels(moved, memory, threads, balance)
    parts = np.stack([compute, issue, *levels])
    largest = parts.max(axis=0)
    norm = ((parts / largest) ** _NORM).sum(axis=0) ** (1 / _NORM)
    overhead = profile.parallel_region_s if threads > 1 else 0.0
    seconds = largest * norm
    at_peak = structure.flops / profile.peak_flops
    if prior is not None and prior.means == "time":
        seconds = at_peak * prior.relative
    elif prior is not None and prior.means == "work":
        # Measured windows are ranked best by the mean.
        seconds = np.sqrt(seconds * at_peak * prior.relative * balance / threads)
    return Estimate(
        seconds=seconds + overhead,
        compute_s=compute,
        issue_s=issue,
        memory_s=levels,
        imbalance=balance,
        traffic=moved,
    )


def _compute(structure: TileStructure, machine: Machine) -> Column:
    """Seconds of the arithmetic on one thread."""
    profile, cpu = machine.profile, machine.cpu
    registers = float(profile.target.vector_registers)
    held = structure.accumulators
    seconds = structure.flops * structure.vector_axis_waste / profile.peak_flops
    seconds = seconds * (2 / structure.flops_per_lane)
    if structure.reduce_axes:
        depth = math.prod(structure.extents[axis] for axis in structure.reduce_axes)
        chains = np.maximum(held, cpu.instructions_in_flight / max(depth, 1))
        seconds = seconds / np.minimum(chains / cpu.multiply_adds_in_flight, 1.0)
    # One register holds the broadcast operand; what does not fit is stored and loaded again.
    live = held + 1 + _operands(structure, float(profile.target.lanes()))
    spilled = np.maximum(live - registers, 0.0) / registers
    crowded = np.maximum(structure.unrolled / cpu.decoded_instructions - 1, 0.0)
    return seconds * (1 + 2 * spilled) * (1 + 0.1 * np.minimum(crowded, 4.0))


def _operands(structure: TileStructure, lanes: float) -> Column:
    """Vectors that one step of the reduction reads for a register tile."""
    tile = {axis: np.full(count(structure), float(e)) for axis, e in structure.extents.items()}
    for level in structure.tiles:
        tile |= level
    tile |= structure.at_once
    tile |= dict.fromkeys(structure.reduce_axes, np.ones(count(structure)))
    vector = _vector_axis(structure.accesses)
    out = np.zeros(count(structure))
    for access in structure.accesses:
        last = [axis for axis, _ in access.dims[-1]] if access.dims else []
        if structure.reduce_axes and not access.written and vector in last:
            axes = {axis for dim in access.dims for axis, _ in dim}
            out = out + math.prod((tile[axis] for axis in axes), start=np.ones(1)) / lanes
    return out


def _instructions(structure: TileStructure, moved: Traffic, lanes: float) -> Column:
    """Memory and loop instructions of one call, in slots that multiply-adds could have used."""
    vector = _vector_axis(structure.accesses)
    total = moved.iterations * _LOOP_INSTRUCTIONS
    for access, elements in zip(structure.accesses, moved.read_elements, strict=True):
        last = [axis for axis, _ in access.dims[-1]] if access.dims else []
        wide = lanes if vector is not None and vector in last else 1.0
        total = total + elements / wide * (2 if access.written else 1)
    return total


def _vector_axis(accesses: tuple[Access, ...]) -> str | None:
    """The axis of the written buffer's last dimension: what vectors run along."""
    for access in accesses:
        if access.written and access.dims and access.dims[-1]:
            return access.dims[-1][0][0]
    return None


def _levels(moved: Traffic, memory: Memory, threads: float, balance: Column) -> tuple[Column, ...]:
    """Seconds of each slot's traffic. Inner caches are one per core; the outer two are shared, and
    two threads draw more from them than one, though not twice as much."""
    own = 2
    out = []
    for number, served in enumerate(moved.served_bytes):
        speed = memory.bytes_per_s[number] * (threads if number < own else np.sqrt(threads))
        out.append(served / speed * (balance if number < own else 1.0))
    return tuple(out)
