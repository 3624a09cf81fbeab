"""Speeds of a core by what was measured on it, where tables only know another one.

In: a target, its profile with facts, and the tables' speeds. Out: the same speeds of this machine.

Priors count in cycles of one full-width multiply-add. What they believe of a cache is not what a
loop of loads measures: data come in beside multiply-adds, in pieces, among other data. Every RATIO
below is of the two, dimensionless: what the table of configs/machines says, which priors of Zen 4
were fitted with, over what micro-benchmarks measured on the same machine. They are taken to be the
same everywhere.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from autotune.machine.curves import Curve, effective_sizes, value_at, values_at
from autotune.machine.facts import MachineFacts, Pairs
from autotune.machine.profile import DeviceProfile
from autotune.machine.speeds import CpuSpeeds
from autotune.target import Target

L2_STREAM_RATIO = 0.75
"""Bandwidth of operands from the L2 cache beside multiply-adds, over that of loads alone."""
L3_STREAM_RATIO = 1.0
"""The same from the L3 cache."""
L3_STREAM_VECTORS = 0.2
"""Vectors of operands from the L3 cache that come in beside each multiply-add at most, however
fast loads alone are (fitted: Winograd's kernels in models on Zen 4, whose cache would give 0.36;
its surveys rank alike from 0.2 on, worse with 0.14; no other machine's cache is that fast)."""
MEMORY_STREAM_RATIO = 1.05
"""The same from memory."""
L2_PASS_RATIO = 1.9
"""Bandwidth of rows in order from the L2 cache, arithmetic hiding a part, over loads alone."""
L3_PASS_RATIO = 0.83
"""The same from the L3 cache."""
L3_STRIP_RATIO = 0.33
"""Bandwidth of results between layers, written and read in the L3 cache, over loads alone."""
MEMORY_STRIP_RATIO = 0.35
"""The same of results in memory."""
COLD_CODE_RATIO = 0.042
"""Bandwidth of machine code fetched from the L3 cache, over loads of data from there."""
TRANSFER_RATIO = 0.32
"""Bandwidth of data from another core's cache as kernels get them, over loads alone."""
DIRTY_TRANSFER_RATIO = 0.054
"""The same of data that the other core has just written."""
OWN_CACHES_RATIO = 0.25
"""Sizes of a core's own cache that results between strips may take, over those that the L3 has."""
ADD_LATENCY_RATIO = 1.16
"""Latency of an addition among other instructions, over that in a chain of additions alone."""
LINE_BYTES = 64
"""Bytes of a cache line in `MachineFacts.in_order`, which are seconds per line."""


def on_machine(target: Target, caches: Pairs) -> Target:
    """The target with the caches of the machine, where its system told of them: code for any
    processor with AVX2 finds those of the one that it runs on."""
    told = {level: int(nbytes) for level, nbytes in caches}
    if target.kind != "cpu" or not told.get(1):
        return target
    way = max(target.l1_bytes // target.l1_ways, target.line_bytes)
    return dataclasses.replace(
        target, l1_bytes=told[1], l1_ways=max(1, told[1] // way),
        l2_bytes=told.get(2, told[1]), l3_bytes=told.get(3, 0),
    )  # fmt: skip


def measured_speeds(target: Target, profile: DeviceProfile, table: CpuSpeeds) -> CpuSpeeds:
    """The table's speeds with all that the profile's facts know better."""
    facts = profile.facts
    if facts is None or not facts.load_curve:
        return table
    target = on_machine(target, facts.caches)
    rate = profile.peak_flops / (2 * target.lanes())
    known = _caches(target, facts, rate, table) | _core(facts, rate, table)
    known |= hidden_streams(facts, facts.load_curve[-1][0])
    return dataclasses.replace(table, **known)


def _caches(target: Target, facts: MachineFacts, rate: float, table: CpuSpeeds) -> dict[str, Any]:
    """Bytes a cycle from and to every level, and how much of the last one there is."""
    believed = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    sizes = effective_sizes(facts.load_curve, believed, facts.latency_curve)
    l2, l3 = (_within(facts.load_curve, sizes, n) / rate for n in (1, 2))
    memory = facts.load_curve[-1][1] / rate
    l3 = max(l3, memory) if sizes[2] else memory
    stores = facts.store_curve or facts.load_curve
    stream_of_l3 = min(L3_STREAM_RATIO * l3, L3_STREAM_VECTORS * target.vector_bytes)
    written = [_within(stores, sizes, n) / rate for n in range(3)]
    known: dict[str, Any] = {
        "l1_store_bytes_per_cycle": written[0],
        "l2_store_bytes_per_cycle": written[1],
        "l3_store_bytes_per_cycle": written[2] if sizes[2] else stores[-1][1] / rate,
        "l2_stream_bytes_per_cycle": L2_STREAM_RATIO * l2,
        "memory_stream_bytes_per_cycle": MEMORY_STREAM_RATIO * memory,
        "l3_stream_bytes_per_cycle": max(stream_of_l3, MEMORY_STREAM_RATIO * memory),
        "l2_pass_bytes_per_cycle": L2_PASS_RATIO * l2,
        "l3_pass_bytes_per_cycle": max(L3_PASS_RATIO * l3, memory),
        "l2_written_pass_bytes_per_cycle": L2_PASS_RATIO * written[1],
        "l3_written_pass_bytes_per_cycle": L3_PASS_RATIO * written[2],
        "l3_strip_bytes_per_cycle": L3_STRIP_RATIO * l3,
        "memory_strip_bytes_per_cycle": MEMORY_STRIP_RATIO * memory,
        "cold_code_bytes_per_cycle": COLD_CODE_RATIO * l3,
        "l1_ways": target.l1_ways,
        "l1_way_bytes": target.l1_bytes // target.l1_ways,
        "line_bytes": target.line_bytes,
    }
    if sizes[2]:
        known["own_share_of_l3"] = table.own_share_of_l3 * sizes[2] / target.l3_bytes
        known["own_caches_in_l3"] = OWN_CACHES_RATIO * sizes[2] / target.l2_bytes
    return known


def hidden_streams(facts: MachineFacts, footprint: float) -> dict[str, Any]:
    """Shares of a stream out of so many bytes that arithmetic hides, or the other way round: with
    one behind the other nothing is hidden. Nothing where that was not measured."""
    rows = facts.in_order
    if not rows:
        return {}
    row = min(rows, key=lambda r: abs(math.log(r.footprint / footprint)))
    alone_s = LINE_BYTES / value_at(facts.load_curve, row.footprint)
    shorter = min(alone_s, row.near_s)
    beside, asked = (
        min(1.0, max(-1.0, (alone_s + row.near_s - both_s) / shorter))
        for both_s in (row.far_s, row.prefetched_s)
    )
    return {"hidden_stream": beside, "hidden_asked_stream": max(beside, asked)}


def _within(curve: Curve, sizes: tuple[int, ...], level: int) -> float:
    """Speed of data that fill half of a cache, and do not fit the one before."""
    before = sizes[level - 1] if level else 0
    size = max(sizes[level], before)
    return float(values_at(curve, max(size / 2, min(1.5 * before, size))))


def _core(facts: MachineFacts, rate: float, table: CpuSpeeds) -> dict[str, Any]:
    """What a core does in a cycle of a full-width multiply-add, and what takes it clocks."""
    known: dict[str, Any] = {}
    if facts.clock_hz:
        clocks = rate / facts.clock_hz
        known["multiply_adds_per_clock"] = clocks
        known["kernel_start_cycles"] = table.kernel_start_cycles * clocks
        if facts.add_latency_s:
            known["add_latency_cycles"] = ADD_LATENCY_RATIO * facts.add_latency_s * facts.clock_hz
    if facts.loads:
        known["broadcasts_per_cycle"] = max(each for _, each in facts.loads) / rate
    if facts.additions_beside is not None:
        known["additions_beside"] = facts.additions_beside
    if facts.lone_line is not None:
        known["paired_line_waste"] = facts.lone_line
    for name, factor, measured in (
        ("other_core_bytes_per_cycle", TRANSFER_RATIO, facts.transfer_bytes_per_s),
        (
            "other_core_dirty_bytes_per_cycle",
            DIRTY_TRANSFER_RATIO,
            facts.transfer_dirty_bytes_per_s,
        ),
    ):
        if measured:
            known[name] = factor * measured / rate
    return known
