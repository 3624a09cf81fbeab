"""Footprint analysis: how many bytes each level of the memory hierarchy serves.

In: the tile structure of many configs and a device profile. Out: one array entry per config.

The nest is walked from the outermost loop to the innermost. Before each loop, the tile that is
left has a footprint (bytes of every buffer that it touches). A cache holds the first, hence
largest, tile that fits it. The loop just around that tile brings in what it touches in all, since
what two tiles in a row share is still there; loops further out bring it in once per iteration,
except where no loop from there on indexes the buffer. A cache that holds the whole problem has it
already: kernels are timed warm, and read what the kernel before them wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.machine.profile import DeviceProfile
from search_spaces.base import Access, Column, TileStructure

SLOTS = ("l1", "l2", "l3", "memory")
"""What serves data. Devices with fewer cache levels leave the outer ones without traffic."""
_USABLE = 0.8
"""Share of the innermost cache that the tile may fill (assumed): the rest is lost to conflicts and
other data. The outer ones have more ways, and what does not fit by a little hits all the same."""
_CHUNK = 8192
"""Configs analysed together: temporaries stay in the caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that one call moves, per config (arrays of n), for all threads together."""

    served_bytes: tuple[Column, ...]
    """Bytes each of SLOTS serves: l1 to the registers, l2 to l1, and so on."""
    tile_bytes: tuple[Column, ...]
    """Footprint of the tile held by each cache of SLOTS (without memory)."""
    read_elements: tuple[Column, ...]
    """Per access, elements that move between l1 and registers."""
    register_visits: Column
    """How often a register tile of the written buffers is started."""
    iterations: Column
    """Iterations of all loops around the register tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A device's hierarchy in SLOTS: sizes of the caches, and bandwidths of everything."""

    cache_bytes: tuple[float, ...]
    bytes_per_s: tuple[float, ...]


def memory_of(profile: DeviceProfile) -> Memory:
    """The profile's levels in slots: missing caches have the size of the one inside them."""
    caches = profile.levels[:-1][: len(SLOTS) - 1]
    sizes = [float(level.size_bytes) for level in caches] or [float(profile.target.l1_bytes)]
    speeds = [level.load_bytes_per_s for level in caches]
    speeds = speeds or [profile.levels[-1].load_bytes_per_s]
    while len(sizes) < len(SLOTS) - 1:
        sizes.append(sizes[-1])
        speeds.append(speeds[-1])
    return Memory(
        cache_bytes=tuple(sizes),
        bytes_per_s=(*speeds, profile.levels[-1].load_bytes_per_s),
    )


def count(structure: TileStructure) -> int:
    """Number of configs a structure describes."""
    return len(structure.accumulators)


def traffic(structure: TileStructure, memory: Memory) -> Traffic:
    """Bytes moved per level by each config of the structure."""
    total = count(structure)
    parts = [
        _walk(structure, memory, slice(start, min(start + _CHUNK, total)))
        for start in range(0, max(total, 1), _CHUNK)
    ]
    if len(parts) == 1:
        return parts[0]
    return Traffic(
        served_bytes=_joined([p.served_bytes for p in parts]),
        tile_bytes=_joined([p.tile_bytes for p in parts]),
        read_elements=_joined([p.read_elements for p in parts]),
        register_visits=np.concatenate([p.register_visits for p in parts]),
        iterations=np.concatenate([p.iterations for p in parts]),
    )


def _joined(parts: list[tuple[Column, ...]]) -> tuple[Column, ...]:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _walk(structure: TileStructure, memory: Memory, part: slice) -> Traffic:
    length = len(structure.accumulators[part])
    ones = np.ones(length)
    accesses = structure.accesses
    tile = {axis: np.full(length, float(e)) for axis, e in structure.extents.items()}
    uses = [frozenset(axis for dim in a.dims for axis, _ in dim) for a in accesses]
    elements = [_elements(a, tile, length) for a in accesses]
    repeats = [ones for _ in accesses]
    trips_so_far = ones
    caches = _Caches(accesses, memory, length)
    brought = [np.zeros(length) for _ in accesses]
    for level in structure.tiles:
        for axis, column in level.items():
            inner = np.minimum(column[part], tile[axis])
            trips = tile[axis] / inner  # a tail is as much less work as it is shorter
            if not (trips > 1).any():
                continue
            caches.fill(elements, brought)
            trips_so_far = trips_so_far * trips
            tile[axis] = inner
            for number, access in enumerate(accesses):
                if axis in uses[number]:
                    repeats[number] = np.where(trips > 1, trips_so_far, repeats[number])
                    brought[number] = elements[number] * repeats[number] / trips
                    elements[number] = _elements(access, tile, length)
                else:
                    brought[number] = elements[number] * repeats[number]
    caches.fill(elements, brought, last=True)
    moved = tuple(e * r for e, r in zip(elements, repeats, strict=True))
    written = [r for a, r in zip(accesses, repeats, strict=True) if a.written]
    return Traffic(
        served_bytes=(_bytes(accesses, elements, repeats), *caches.served),
        tile_bytes=tuple(caches.held),
        read_elements=moved,
        register_visits=written[0] if written else trips_so_far,
        iterations=trips_so_far,
    )


class _Caches:
    """For each cache, the first tile of the walk that fits it and what bringing it in costs."""

    def __init__(self, accesses: tuple[Access, ...], memory: Memory, length: int) -> None:
        self._accesses = accesses
        first, *outer = memory.cache_bytes
        self._sizes = [first * _USABLE, *outer]
        self._open = [np.ones(length, bool) for _ in self._sizes]
        self.served = [np.zeros(length) for _ in self._sizes]
        self.held = [np.zeros(length) for _ in self._sizes]

    def fill(self, elements: list[Column], brought: list[Column], *, last: bool = False) -> None:
        """Offer the tile left at this point to every cache that holds none yet. `brought`: what
        the loops around it bring in."""
        if not any(o.any() for o in self._open):
            return
        footprint = _bytes(self._accesses, elements, None)
        served = _bytes(self._accesses, brought, [1.0] * len(brought))
        for number, size in enumerate(self._sizes):
            fits = self._open[number] & ((footprint <= size) | last)
            self.served[number] = np.where(fits, served, self.served[number])
            self.held[number] = np.where(fits, footprint, self.held[number])
            self._open[number] &= ~fits


def _bytes(
    accesses: tuple[Access, ...],
    elements: list[Column],
    repeats: list[Column] | list[float] | None,
) -> Column:
    """Bytes of all buffers; with `repeats`, bytes moved, where a written byte moves twice."""
    total = np.zeros_like(elements[0]) if elements else np.zeros(1)
    for number, access in enumerate(accesses):
        if repeats is None:
            total = total + elements[number] * access.item_bytes
        else:
            ways = 2 if access.written else 1
            total = total + elements[number] * repeats[number] * (access.item_bytes * ways)
    return total


def _elements(access: Access, tile: dict[str, Column], length: int) -> Column:
    """Elements of the buffer that the tile touches."""
    out = np.ones(length)
    for extent, dim in zip(access.shape, access.dims, strict=True):
        if not dim:
            continue
        if len(dim) == 1 and dim[0][1] == 1:
            out = out * np.minimum(tile[dim[0][0]], extent)
            continue
        # A stride larger than what is read per step leaves elements between untouched.
        span = np.ones(length)
        points = np.ones(length)
        for axis, coefficient in dim:
            span = span + abs(coefficient) * (tile[axis] - 1)
            points = points * tile[axis]
        out = out * np.minimum(np.minimum(span, points), extent)
    return out
