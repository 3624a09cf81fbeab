"""The least work of a kernel. In: a task and its schedule. Out: operations and bytes.

The operations are those of the algorithm that the schedule takes; bytes are counted once, however
often a kernel comes back to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.program.ir import Pack
from autotune.program.packing import packed_shape
from autotune.schedule.base import Schedule, apply_schedule
from autotune.tasks.build import build_program
from autotune.types import ITEM_BYTES, Task, TensorType
from search_spaces.algorithms.base import algorithm_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`algorithm` is direct where a task offers a choice of none."""

    algorithm: str
    flops: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int


def work_of(task: Task, schedule: Schedule, packs: Sequence[Pack]) -> Work:
    """Operations and bytes of one run of the task."""
    sizes = {"input": 0, "constant": 0, "output": 0}
    for name, nbytes in bytes_read(task, packs).items():
        sizes[task.value(name).role] += nbytes
    algorithm, label = algorithm_of(schedule)
    return Work(
        algorithm=label,
        flops=algorithm.flops(task, schedule),
        input_bytes=sizes["input"],
        weight_bytes=sizes["constant"],
        output_bytes=sizes["output"],
    )


def bytes_read(task: Task, packs: Sequence[Pack]) -> dict[str, int]:
    """Bytes of each of the task's values that a run goes through; of weights as packed."""
    packed = {p.buffer: p for p in packs}
    read = _elements_read(task)
    out = {}
    for value in task.params:
        pack = packed.get(value.name)
        nbytes = _packed_bytes(pack, value.type) if pack else value.type.nbytes
        out[value.name] = min(nbytes, read.get(value.name, nbytes) * ITEM_BYTES[value.type.dtype])
    return out


def scheduled_weights(task: Task, schedule: Schedule) -> dict[str, int]:
    """Bytes of each of the task's weights that a run by this schedule goes through. Raises
    ScheduleError."""
    return bytes_of_weights(task, apply_schedule(build_program(task), schedule).packs)


def bytes_of_weights(task: Task, packs: Sequence[Pack] = ()) -> dict[str, int]:
    """The same by what a schedule packs; without: of the weights as they are in the graph."""
    read = bytes_read(task, packs)
    return {v.name: read[v.name] for v in task.by_role("constant")}


def _packed_bytes(pack: Pack, kind: TensorType) -> int:
    return math.prod(packed_shape(pack)) * ITEM_BYTES[pack.dtype or kind.dtype]


def _elements_read(task: Task) -> dict[str, int]:
    """Elements read of tables from which only a few rows are gathered: at most as many as the
    result has."""
    out: dict[str, int] = {}
    for node in task.nodes:
        if node.op in ("gather", "gather_elements"):
            table = node.inputs[0]
            out[table] = out.get(table, 0) + task.value(node.outputs[0]).type.size
    return out
