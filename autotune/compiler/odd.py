"""Values at odd places. In: a partition for a GPU. Out: per task, which of its params may begin
where vectors cannot: parts of other tensors. Their kernels must assume nothing of their addresses.
"""

from __future__ import annotations

from autotune.codegen.nvptx_access import first_alignment
from autotune.graph.plan import Partition
from autotune.program.build import build_program
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task

OddParams = dict[Task, frozenset[str]]


def odd_params(partition: Partition, target: Target) -> OddParams:
    """Names of params by task, of tasks that have any. Every storage begins at a multiple of what
    any kernel asks for; OpenCL and processors ask for nothing."""
    if target.kind != "cuda":
        return {}
    wanted: dict[Task, dict[str, int]] = {}
    found: OddParams = {}
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
