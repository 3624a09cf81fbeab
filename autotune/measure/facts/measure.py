"""All micro-benchmarks. In: a target of this machine, and the cores to use. Out: MachineFacts.

Takes a few seconds. Every figure is a least or a low one of many short samples, taken over a
while: what somebody else does on the machine disturbs some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from autotune.machine.facts import MachineFacts
from autotune.measure.facts.arithmetic import Registers
from autotune.measure.facts.beside import Beside
from autotune.measure.facts.cores import Together, regions
from autotune.measure.facts.memory import Memory
from autotune.measure.facts.processor import processor_of
from autotune.measure.profile import parallel_region_s
from autotune.target import Target


def measure_facts(
    target: Target,
    cores: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
) -> MachineFacts:
    """Raises BuildError where the target's code cannot be built or loaded here."""
    alone = target.with_threads(1)
    registers = Registers(alone, clock)
    memory = Memory(alone, clock, np.random.default_rng(seed))
    beside = Beside(alone, clock)
    together = Together(alone, clock, cores)
    return MachineFacts(
        processor=processor_of(target),
        cores=len(cores),
        clock_hz=registers.clock_hz(),
        clocks=registers.clocks(),
        arithmetic=registers.arithmetic(),
        add_latency_s=registers.add_latency_s(),
        denormal_s=registers.denormal_s(),
        loads=registers.loads(),
        stores=registers.stores(),
        broadcasts_per_s=registers.broadcasts_per_s(),
        additions_beside=beside.additions(),
        lone_line=beside.lone_line(),
        gathers_per_s=registers.gathers_per_s(),
        load_curve=memory.load_curve(),
        store_curve=memory.store_curve(),
        copy_curve=memory.copy_curve(),
        latency_curve=memory.latency_curve(),
        page_curve=memory.page_curve(),
        scattered=memory.scattered(),
        load_curve_all=together.load_curve(memory.data),
        transfer_s=together.transfer_s(),
        transfer_bytes_per_s=together.handed_bytes_per_s(dirty=False),
        transfer_dirty_bytes_per_s=together.handed_bytes_per_s(dirty=True),
        regions=regions(lambda n: parallel_region_s(target.with_threads(n), clock), len(cores)),
    )
