"""What a kernel has to do at least. In: a task and its schedule. Out: operations and bytes.

The operations are those of the algorithm that the schedule takes; bytes are counted once, however
often a kernel comes back to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.graph.plan import task_flops
from autotune.ops import OPS, compute_flops
from autotune.program.ir import Pack
from autotune.program.packing import packed_shape
from autotune.program.winograd import points_of
from autotune.schedule.attention import Attend
from autotune.schedule.base import Schedule
from autotune.schedule.strassen import Strassen, StrassenRuns
from autotune.schedule.winograd import Winograd
from autotune.types import ITEM_BYTES, Task, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`algorithm` is direct where a task offers a choice of none."""

    algorithm: str
    flops: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int


def work_of(task: Task, schedule: Schedule, packs: Sequence[Pack]) -> Work:
    """Of one run of the task."""
    packed = {p.buffer: p for p in packs}
    sizes = {"input": 0, "constant": 0, "output": 0}
    read = _elements_read(task)
    for value in task.params:
        pack = packed.get(value.name)
        nbytes = _packed_bytes(pack, value.type) if pack else value.type.nbytes
        item = ITEM_BYTES[value.type.dtype]
        sizes[value.role] += min(nbytes, read.get(value.name, nbytes) * item)
    return Work(
        algorithm=_algorithm(schedule),
        flops=_flops(task, schedule),
        input_bytes=sizes["input"],
        weight_bytes=sizes["constant"],
        output_bytes=sizes["output"],
    )


def _algorithm(schedule: Schedule) -> str:
    """The name of the algorithm, as the parameter of that name calls it."""
    for step in schedule:
        if isinstance(step, Winograd):
            oblong = min(step.tile_h, step.tile_w) > 1 and step.tile_h != step.tile_w
            shape = f"{step.tile_h}x{step.tile_w}" if oblong else max(step.tile_h, step.tile_w)
            return f"winograd{shape}"
        if isinstance(step, Strassen | StrassenRuns):
            return "strassen"
        if isinstance(step, Attend):
            return "attention"
        if step.step == "narrow":
            return "bf16"
    return "int8" if any(step.step == "dot" for step in schedule) else "direct"


def _flops(task: Task, schedule: Schedule) -> int:
    for step in schedule:
        if isinstance(step, Winograd):
            return _winograd_flops(task, step)
        if isinstance(step, Strassen | StrassenRuns):
            return _strassen_flops(task)
        if isinstance(step, Attend):
            return round(task_flops(task) * _share_seen(task, step))
    return task_flops(task)


def _share_seen(task: Task, step: Attend) -> float:
    """Of the blocks of scores, those that a causal mask does not hide whole."""
    node = next((n for n in task.nodes if n.op == "causal"), None)
    if node is None:
        return 1.0
    attrs: dict[str, Any] = dict(node.attrs)
    rows, keys = task.value(node.outputs[0]).type.shape[-2:]
    ends = range(step.rows, rows + step.rows, step.rows)
    seen = sum(-(-min(end + attrs.get("offset", 0), keys) // step.keys) for end in ends)
    return float(seen * step.keys / keys / len(ends))


def _strassen_flops(task: Task) -> int:
    """Seven eighths of the multiply-adds, and the additions at both ends: of quarters, five of the
    data and eight of the result."""
    node = task.nodes[task.anchor]
    data, out = task.value(node.inputs[0]).type, task.value(node.outputs[0]).type
    products = 2 * out.size * data.shape[-1] * 7 // 8
    sums = (5 * data.size + 8 * out.size) // 4
    return products + sums + task_flops(task) - sum(_direct_flops(task))


def _packed_bytes(pack: Pack, kind: TensorType) -> int:
    return math.prod(packed_shape(pack)) * ITEM_BYTES[pack.dtype or kind.dtype]


def _elements_read(task: Task) -> dict[str, int]:
    """Of tables from which only a few rows are gathered: at most as much as the result has."""
    out: dict[str, int] = {}
    for node in task.nodes:
        if node.op in ("gather", "gather_elements"):
            table = node.inputs[0]
            out[table] = out.get(table, 0) + task.value(node.outputs[0]).type.size
    return out


def _winograd_flops(task: Task, step: Winograd) -> int:
    """Products, both transforms, and what the rest of the task takes."""
    node = task.nodes[task.anchor]
    weights, out = task.value(node.inputs[1]).type.shape, task.value(node.outputs[0]).type.shape
    kh, kw, ic, oc = weights
    channels = task.value(node.inputs[0]).type.shape[3]
    tiles = out[0] * -(-out[1] // step.tile_h) * -(-out[2] // step.tile_w)
    attrs: dict[str, Any] = dict(node.attrs)
    by_row, by_column = attrs.get("strides", (1, 1))
    rows, columns = points_of(step.tile_h, kh, by_row), points_of(step.tile_w, kw, by_column)
    products = 2 * tiles * rows * columns * ic * oc
    # A multiply-add per element of the matrices: rows first, then columns.
    ahead = 2 * tiles * channels * (rows * rows * columns + rows * columns * columns)
    behind = 2 * tiles * oc * (step.tile_h * rows * columns + step.tile_h * step.tile_w * columns)
    return products + ahead + behind + task_flops(task) - sum(_direct_flops(task))


def _direct_flops(task: Task) -> Iterator[int]:
    node = task.nodes[task.anchor]
    inputs = [(name, task.value(name).type) for name in node.inputs]
    output = (node.outputs[0], task.value(node.outputs[0]).type)
    for compute in OPS.get(node.op).expression(inputs, output, dict(node.attrs)):
        yield compute_flops(compute)
