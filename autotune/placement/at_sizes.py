"""A partition whose sizes are known at run time only, at given sizes. In: values of its symbols.
Out: a partition of those sizes, as its memory is looked at: calls, placements, storages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autotune.graph.at_sizes import graph_at
from autotune.placement.types import (
    KernelCall,
    MovingSlot,
    Partition,
    Placement,
    Repeat,
    Storage,
)
from autotune.sizes import value_at
from autotune.tasks.at_sizes import layout_at, task_at


def partition_at(partition: Partition, values: Mapping[str, int]) -> Partition:
    """The partition where its symbols have these values; calls are as they were, each of its task
    at these sizes. KeyError for a symbol that is missing."""

    def amount(size: int) -> int:
        return value_at(size, values)

    def storage(each: Storage) -> Storage:
        return dataclasses.replace(
            each,
            elements=amount(each.elements),
            shape=tuple(map(amount, each.shape)),
            halo=tuple((amount(before), amount(after)) for before, after in each.halo),
        )

    def placement(each: Placement) -> Placement:
        layout = layout_at(each.layout, values)
        return dataclasses.replace(each, offset=amount(each.offset), layout=layout)

    def slot(each: MovingSlot) -> MovingSlot:
        return dataclasses.replace(each, start=amount(each.start), step=amount(each.step))

    def repeat(each: Repeat) -> Repeat:
        slots = tuple(map(slot, each.slots))
        return dataclasses.replace(each, trips=amount(each.trips), slots=slots)

    def call(each: KernelCall) -> KernelCall:
        return dataclasses.replace(each, task=task_at(each.task, values))

    return dataclasses.replace(
        partition,
        graph=graph_at(partition.graph, values),
        calls=tuple(map(call, partition.calls)),
        placements={name: placement(each) for name, each in partition.placements.items()},
        storages={name: storage(each) for name, each in partition.storages.items()},
        layouts={},
        repeats=tuple(map(repeat, partition.repeats)),
    )
