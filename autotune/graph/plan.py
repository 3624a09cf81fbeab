"""What partitioning gives: fused kernel calls and where every tensor lies.

Views (reshape, transpose, slice, split, concat) move nothing: they are placements in the storage
of another value. What compile and the tuner need, and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.graph.ir import Graph
from autotune.graph.layouts import Layouts
from autotune.ops import OPS, compute_flops
from autotune.types import Layout, Task, TaskNode, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A block of memory that holds one or more values.

    kind: arena (planned scratch memory), input or output (the caller's array, dense), constant.
    `elements` counts everything, halo included. `zeroed`: must hold zeros wherever no kernel
    writes (halos), so it may share memory only with storages of equal `sharing`."""

    name: str
    kind: str
    dtype: str
    elements: int
    zeroed: bool = False
    sharing: str = ""
    """Equal for zeroed storages of identical layout: these may share memory, others may not."""
    shape: tuple[int, ...] = ()
    halo: tuple[tuple[int, int], ...] = ()
    """Of zeroed storages, what they hold and the zeros around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a value lies: element (0, 0, ...) is at `offset` elements into the storage."""

    storage: str
    offset: int
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """One task applied to values of the graph: task value name -> graph value name, for every
    input, constant and output of the task."""

    task: Task
    args: tuple[tuple[str, str], ...]
    name: str
    """The model's own node names, joined: for tables and messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A graph as kernel calls in execution order, with all placements decided."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    placements: Mapping[str, Placement]
    storages: Mapping[str, Storage]
    layouts: Layouts = field(default_factory=dict)
    """Of values that are not dense."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Values made for these layouts -> those they stand for."""

    def weights(self) -> dict[Task, int]:
        """Unique tasks in order of first use, and how often each is called per run."""
        out: dict[Task, int] = {}
        for call in self.calls:
            out[call.task] = out.get(call.task, 0) + 1
        return out


def task_flops(task: Task) -> int:
    """Floating-point operations of one run of the task."""
    return sum(_node_flops(task, node) for node in task.nodes)


def anchor_flops(task: Task) -> int:
    """Floating-point operations of its anchor, and of products ahead of it, of which a causal mask
    hides a share."""
    total, seen = _node_flops(task, task.nodes[task.anchor]), 1.0
    for node in task.nodes[: task.anchor]:
        if OPS.get(node.op).kind == "contraction":
            total += _node_flops(task, node)
        elif node.op == "causal":
            seen = _share_seen(task, node)
    return round(total * seen)


def _share_seen(task: Task, node: TaskNode) -> float:
    """Of scores, those in front of a causal mask."""
    rows, keys = task.value(node.outputs[0]).type.shape[-2:]
    offset = dict(node.attrs).get("offset", 0)
    assert isinstance(offset, int)
    return sum(min(row + offset + 1, keys) for row in range(rows)) / (rows * keys)


def _node_flops(task: Task, node: TaskNode) -> int:
    if OPS.get(node.op).kind in ("view", "data") or node.op == "scalar":
        return 0
    inputs = [(name, task.value(name).type) for name in node.inputs]
    output = (node.outputs[0], task.value(node.outputs[0]).type)
    computes = OPS.get(node.op).expression(inputs, output, dict(node.attrs))
    return sum(compute_flops(compute) for compute in computes)


def describe(task: Task) -> str:
    """One line: "conv2d 1x56x56x64 -> 1x56x56x64 k3x3 s1 +add+relu"; before "+", what runs ahead
    of the anchor is written "mul+softmax"."""
    anchor = task.nodes[task.anchor]
    inputs = [task.value(i).type for i in anchor.inputs]
    shapes = "x".join(map(str, inputs[0].shape)) if inputs else ""
    if anchor.op == "scatter":
        shapes = "x".join(map(str, inputs[2].shape))
    if anchor.op == "matmul":
        shapes += " * " + "x".join(map(str, inputs[1].shape))
    output = "x".join(map(str, task.value(anchor.outputs[0]).type.shape))
    before = [n.op for n in task.nodes[: task.anchor] if n.op != "scalar"]
    after = [n.op for n in task.nodes[task.anchor + 1 :] if n.op != "scalar"]
    head = "+".join([*before, anchor.op])
    parts = [head, shapes or "()", "->", output or "()", *_details(anchor, inputs)]
    return " ".join(parts + (["+" + "+".join(after)] if after else []))


def _details(node: TaskNode, inputs: list[TensorType]) -> list[str]:
    attrs = dict(node.attrs)
    kernel = attrs.get("kernel", inputs[1].shape[:2] if node.op == "conv2d" else ())
    out = []
    for name, value, usual in (
        ("k", kernel, ()),
        ("s", attrs.get("strides", ()), ()),
        ("d", attrs.get("dilations", (1, 1)), (1, 1)),
        ("g", attrs.get("groups", 1), 1),
        ("axis", attrs.get("axis", attrs.get("axes", ())), ()),
        ("perm", attrs.get("perm", ()), ()),
    ):
        if value != usual:
            out.append(name + _extents(value))
    if attrs.get("transpose_b"):
        out.append("transposed")
    return out


def _extents(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    same = len(set(value)) == 1 and len(value) == 2
    return str(value[0]) if same and value[0] < 3 else "x".join(map(str, value))
