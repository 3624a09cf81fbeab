"""Floating-point operations of tasks. In: a task. Out: operations of one run.

Counted as the operators declare them, whatever algorithm a schedule takes.
"""

from __future__ import annotations

from autotune.ops import OPS, compute_flops
from autotune.types import Task, TaskNode


def task_flops(task: Task) -> int:
    """Floating-point operations of one run of the task."""
    return sum(node_flops(task, node) for node in task.nodes)


def anchor_flops(task: Task) -> int:
    """Floating-point operations of its anchor, and of products ahead of it, of which a causal mask
    hides a share."""
    total, seen = node_flops(task, task.nodes[task.anchor]), 1.0
    for node in task.nodes[: task.anchor]:
        if OPS.get(node.op).kind == "contraction":
            total += node_flops(task, node)
        elif node.op == "causal":
            rows, keys = task.value(node.outputs[0]).type.shape[-2:]
            seen = causal_share(rows, keys, causal_offset(node))
    return round(total * seen)


def causal_offset(node: TaskNode) -> int:
    """Row i looks at keys up to i + this."""
    offset = dict(node.attrs).get("offset", 0)
    assert isinstance(offset, int)
    return offset


def causal_share(
    rows: int, keys: int, offset: int, block_rows: int = 1, block_keys: int = 1
) -> float:
    """Share of the blocks of scores that a causal mask does not hide whole."""
    ends = range(block_rows, rows + block_rows, block_rows)
    seen = sum(-(-min(end + offset, keys) // block_keys) for end in ends)
    return seen * block_keys / (keys * len(ends))


def node_flops(task: Task, node: TaskNode) -> int:
    """Floating-point operations of one of its nodes."""
    if OPS.get(node.op).kind in ("view", "data") or node.op == "scalar":
        return 0
    inputs = [(name, task.value(name).type) for name in node.inputs]
    output = (node.outputs[0], task.value(node.outputs[0]).type)
    computes = OPS.get(node.op).expression(inputs, output, dict(node.attrs))
    return sum(compute_flops(compute) for compute in computes)
