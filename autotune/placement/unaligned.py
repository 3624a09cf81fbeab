"""Unaligned params. In: a partition for a GPU. Out: per task, which of its params may begin
where vectors cannot: parts of other tensors. Their kernels must assume nothing of their addresses.
"""

from __future__ import annotations

from autotune.placement.types import Partition
from autotune.program.alignment import first_alignment
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.types import ITEM_BYTES, Task

UnalignedParams = dict[Task, frozenset[str]]


def unaligned_params(partition: Partition, target: Target) -> UnalignedParams:
    """Names of params by task, of tasks that have any. Every storage begins at a multiple of what
    any kernel asks for; OpenCL and processors ask for nothing."""
    if target.kind != "cuda":
        return {}
    wanted: dict[Task, dict[str, int]] = {}
    found: UnalignedParams = {}
    for call in partition.calls:
        if call.task not in wanted:
            params = build_program(call.task).params
            wanted[call.task] = {p.name: first_alignment(p) for p in params if not p.constant}
        values = dict(call.args)
        for name, alignment in wanted[call.task].items():
            placement = partition.placements[values[name]]
            item = ITEM_BYTES[call.task.value(name).type.dtype]
            if placement.offset * item % alignment:
                found[call.task] = found.get(call.task, frozenset()) | {name}
    return found
