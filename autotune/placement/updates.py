"""Outputs that may lie where an input does, so that a state is updated in place. In: a Partition.
Out: pairs of an input's and an output's public name.

A pair is one where the input is read for the last time before the output is first written; or by
the very kernel that writes it, if that reads each element only for the same element of its result
or joins updates to it: a scatter leaves its own copy out where both lie in one place.
"""

from __future__ import annotations

from autotune.placement.memory_plan import read_in_step
from autotune.placement.types import Partition, Placement
from autotune.types import Task, dense_strides

_Touched = dict[str, list[int]]
"""By storage, the numbers of the calls that touch it."""


def updatable(partition: Partition) -> tuple[tuple[str, str], ...]:
    """(input, output), every pair of which may share memory by itself and beside others that name
    neither."""
    touched = _touched(partition)
    shown = [partition.placements[value].storage for _, value in partition.graph.outputs]
    out = []
    for name, kind in partition.graph.inputs:
        place = partition.placements.get(name)
        if place is None or place.storage in shown:
            continue
        for public, value in partition.graph.outputs:
            then = partition.placements[value]
            whole = partition.storages[then.storage].kind == "output"
            alone = shown.count(then.storage) == 1
            same = partition.graph.types[value] == kind and _is_dense(then, kind.shape)
            if whole and alone and same and _after(partition, touched, place, then):
                out.append((name, public))
    return tuple(out)


def _touched(partition: Partition) -> _Touched:
    out: _Touched = {}
    for number, call in enumerate(partition.calls):
        for _, value in call.args:
            if value in partition.placements:
                out.setdefault(partition.placements[value].storage, []).append(number)
    return out


def _is_dense(place: Placement, shape: tuple[int, ...]) -> bool:
    return place.offset == 0 and place.layout.strides == dense_strides(shape)


def _after(partition: Partition, touched: _Touched, old: Placement, new: Placement) -> bool:
    """Whether nothing of the old is read once some of the new is written."""
    readers, writers = touched.get(old.storage, []), touched.get(new.storage, [])
    if not writers:
        return False
    if not readers or readers[-1] < writers[0]:
        return True
    return readers[-1] == writers[0] and _in_step(partition, readers[-1], old, new)


def _in_step(partition: Partition, number: int, old: Placement, new: Placement) -> bool:
    call = partition.calls[number]
    result, *further = call.task.by_role("output")
    if further:
        return False
    values = dict(call.args)
    if partition.placements.get(values[result.name]) != new:
        return False
    uses = [
        name
        for name, value in call.args
        if name != result.name
        and value in partition.placements
        and partition.placements[value].storage == old.storage
    ]
    return set(uses) <= (read_in_step(call.task) | _joined(call.task)) and all(
        partition.placements[values[name]].offset == new.offset
        and partition.placements[values[name]].layout == new.layout
        and call.task.value(name).type == result.type
        for name in uses
    )


def _joined(task: Task) -> frozenset[str]:
    """The input that a scatter joins updates to, where that is all that it is read for and the
    scatter makes the task's result."""
    last = task.nodes[-1]
    if last.op != "scatter" or task.by_role("output")[0].name not in last.outputs:
        return frozenset()
    kept = last.inputs[0]
    reads = sum(node.inputs.count(kept) for node in task.nodes)
    return frozenset((kept,)) if reads == 1 else frozenset()
