"""Rooflines: what peak and bandwidths allow at best (Williams, Waterman, Patterson 2009).

In: a machine, operations and bytes. Out: seconds, or the level of the hierarchy that serves them.
"""

from __future__ import annotations

from autotune.machine.profile import CacheLevel
from autotune.machine.value import Machine


def roofline_s(flops: int, nbytes: int, machine: Machine) -> float:
    """Seconds below which a task cannot go by direct code: every operation at peak on all threads,
    and every byte once, from the innermost cache of a core that still has room for it."""
    profile = machine.profile
    moving_s = sum(n / level.load_bytes_per_s for level, n in served(machine, nbytes, 1))
    return max(flops / profile.peak_flops, moving_s) / profile.target.threads


def served(machine: Machine, nbytes: int, cores: int) -> tuple[tuple[CacheLevel, int], ...]:
    """Bytes of a footprint by the level that serves them: what an inner cache has no room for
    comes from the next one. Caches but the last are each core's own."""
    *caches, memory = machine.profile.levels
    left, inside, out = nbytes, 0, list[tuple[CacheLevel, int]]()
    for place, level in enumerate(caches):
        shared = place == len(caches) - 1 and place > 1
        size = level.size_bytes * (1 if shared else cores)
        here = min(left, max(size - inside, 0))
        out.append((level, here))
        left, inside = left - here, max(inside, size)
    return (*out, (memory, left))


def level_of(machine: Machine, nbytes: int) -> CacheLevel:
    """The smallest level that holds so many bytes."""
    found = [level for level, n in served(machine, nbytes, machine.target.threads) if n]
    return found[-1] if found else machine.profile.levels[0]
