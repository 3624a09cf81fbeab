"""Rooflines: what peak and bandwidths allow at best (Williams, Waterman, Patterson 2009).

In: a machine, operations and bytes. Out: seconds, or the level of the hierarchy that serves them.
"""

from __future__ import annotations

from autotune.machine.profile import CacheLevel
from autotune.machine.value import Machine


def roofline_s(flops: int, nbytes: int, machine: Machine) -> float:
    """Seconds below which a task cannot go by direct code: every operation at peak on all threads,
    and every byte once, from the innermost cache that still has room for it."""
    profile, threads = machine.profile, machine.profile.target.threads
    left, inside, moving_s = nbytes, 0, 0.0
    for level in profile.levels:
        last = level is profile.levels[-1]
        here = left if last else min(left, max(level.size_bytes - inside, 0))
        moving_s += here / level.load_bytes_per_s
        left, inside = left - here, max(inside, level.size_bytes)
    return max(flops / profile.peak_flops, moving_s) / threads


def level_of(machine: Machine, nbytes: int) -> CacheLevel:
    """The smallest level that holds so many bytes; caches but the last are per core."""
    *caches, memory = machine.profile.levels
    for place, level in enumerate(caches):
        shared = place == len(caches) - 1 and place > 1
        if nbytes <= level.size_bytes * (1 if shared else machine.target.threads):
            return level
    return memory
