"""A task in one line, for tables and messages. In: a task. Out: operators and shapes."""

from __future__ import annotations

from autotune.types import EXACT, Task, TaskNode, TensorType


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
    if attrs.get(EXACT):
        out.append(EXACT)
    return out


def _extents(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    same = len(set(value)) == 1 and len(value) == 2
    return str(value[0]) if same and value[0] < 3 else "x".join(map(str, value))
