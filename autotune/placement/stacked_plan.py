"""The arena of a model of open sizes. In: its partition, and representative sizes. Out: blocks of
storages, each above others, whose addresses follow from sizes that only a run knows.

The order is that of the plan for the representative sizes: of two blocks that live at the same
time, the one that is lower there is lower everywhere, and every block begins where the highest of
those below it ends. No call writes over what it reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.placement.memory_plan import Block, arena_order
from autotune.placement.types import Partition, Storage
from autotune.sizes import value_at
from autotune.types import ITEM_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaBlock:
    """Storages at one address, in use from call `first` to call `last`."""

    storages: tuple[str, ...]
    first: int
    last: int
    nbytes: tuple[int, ...]
    """Amounts the largest of which it must hold."""
    below: tuple[int, ...]
    """Numbers of the blocks, before this one, above which it lies."""


def stacked(partition: Partition, sizes: Mapping[str, int]) -> tuple[ArenaBlock, ...]:
    """The blocks, lowest first at these sizes."""
    storages = {n: _storage_at(s, sizes) for n, s in partition.storages.items()}
    there = dataclasses.replace(partition, storages=storages)
    placed = sorted(arena_order(there), key=lambda found: found[0])
    out: list[ArenaBlock] = []
    for number, (_, block) in enumerate(placed):
        out.append(
            ArenaBlock(
                storages=block.storages,
                first=block.first,
                last=block.last,
                nbytes=tuple(dict.fromkeys(_bytes(partition, n) for n in block.storages)),
                below=_below(block, [b for _, b in placed[:number]]),
            )
        )
    return tuple(out)


def _below(block: Block, lower: Sequence[Block]) -> tuple[int, ...]:
    return tuple(n for n, other in enumerate(lower) if other.meets(block))


def _bytes(partition: Partition, name: str) -> int:
    storage = partition.storages[name]
    return storage.elements * ITEM_BYTES[storage.dtype]


def _storage_at(storage: Storage, sizes: Mapping[str, int]) -> Storage:
    return dataclasses.replace(storage, elements=value_at(storage.elements, sizes))
