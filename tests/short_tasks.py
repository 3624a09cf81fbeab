"""Tasks whose tensors in memory are short floats. In: a task of float32. Out: the same with its
inputs and its output short, converted at the ends as the graph's pass does it.
"""

from __future__ import annotations

import dataclasses

from autotune.ops import OPS
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType


def short(task: Task, dtype: str = "bfloat16", output: bool = True) -> Task:
    """`output`: whether it is short too."""
    names = {v.name for v in task.by_role("input") if v.type.dtype == "float32"}
    nodes: list[TaskNode] = []
    values = [_typed(v, dtype) if v.name in names else v for v in task.values]
    anchor = 0
    for number, node in enumerate(task.nodes):
        inputs = []
        for name in node.inputs:
            reads = OPS.get(node.op).kind in ("contraction", "pool")
            if name in names and not reads:
                inputs.append(f"{name}.wide{number}")
                nodes.append(TaskNode(op="to_float32", inputs=(name,), outputs=(inputs[-1],)))
                values.append(_local(task.value(name), inputs[-1]))
            else:
                inputs.append(name)
        if number == task.anchor:
            anchor = len(nodes)
        nodes.append(dataclasses.replace(node, inputs=tuple(inputs)))
    made = Task(nodes=tuple(nodes), values=tuple(values), anchor=anchor)
    return _short_output(made, dtype) if output else made


def _short_output(task: Task, dtype: str) -> Task:
    (out,) = task.by_role("output")
    last = f"{out.name}.wide"
    nodes = [
        dataclasses.replace(
            n,
            inputs=tuple(last if i == out.name else i for i in n.inputs),
            outputs=tuple(last if o == out.name else o for o in n.outputs),
        )
        for n in task.nodes
    ]
    nodes.append(TaskNode(op=f"to_{dtype}", inputs=(last,), outputs=(out.name,)))
    values = [_typed(v, dtype) if v is out else v for v in task.values]
    return Task(nodes=tuple(nodes), values=(*values, _local(out, last)), anchor=task.anchor)


def _typed(value: TaskValue, dtype: str) -> TaskValue:
    return dataclasses.replace(value, type=TensorType(dtype=dtype, shape=value.type.shape))


def _local(like: TaskValue, name: str) -> TaskValue:
    shape = like.type.shape
    kind = TensorType(dtype="float32", shape=shape)
    return TaskValue(name=name, type=kind, role="local", layout=Layout.dense(shape))
