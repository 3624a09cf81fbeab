"""Small tasks for the tests of this folder."""

from __future__ import annotations

from autotune.types import Attr, Layout, Task, TaskNode, TaskValue, TensorType, freeze_attrs

Halo = tuple[tuple[int, int], ...]


def value(
    name: str, shape: tuple[int, ...], dtype: str = "float32", halo: Halo | None = None
) -> TaskValue:
    """A value whose role follows from its name: i input, c constant, t local, o output."""
    role = {"i": "input", "c": "constant", "t": "local", "o": "output"}[name[0]]
    layout = Layout.haloed(shape, halo) if halo else Layout.dense(shape)
    return TaskValue(
        name=name, type=TensorType(dtype=dtype, shape=shape), role=role, layout=layout
    )


def node(op: str, inputs: str, output: str, **attrs: Attr) -> TaskNode:
    """A node; input names separated by spaces."""
    return TaskNode(
        op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=freeze_attrs(attrs)
    )


def task(nodes: list[TaskNode], values: list[TaskValue]) -> Task:
    return Task(nodes=tuple(nodes), values=tuple(values), anchor=0)


def conv_relu(halo: Halo | None = None) -> Task:
    """A padded 3x3 convolution, doubled, and relu."""
    return task(
        [
            node("conv2d", "i0 c0", "t0", pads=(1, 1, 1, 1)),
            node("scalar", "", "t1", value=2.0, dtype="float32"),
            node("mul", "t0 t1", "t2"),
            node("relu", "t2", "o0"),
        ],
        [
            value("i0", (1, 4, 5, 3), halo=halo),
            value("c0", (3, 3, 3, 4)),
            value("t0", (1, 4, 5, 4)),
            value("t1", ()),
            value("t2", (1, 4, 5, 4)),
            value("o0", (1, 4, 5, 4)),
        ],
    )


def conv_conv() -> Task:
    """Two padded convolutions: the second pads what the first makes."""
    return task(
        [
            node("conv2d", "i0 c0", "t0", pads=(1, 1, 1, 1)),
            node("conv2d", "t0 c1", "o0", pads=(0, 1, 2, 0)),
        ],
        [
            value("i0", (1, 3, 3, 2)),
            value("c0", (3, 3, 2, 2)),
            value("c1", (3, 2, 2, 1)),
            value("t0", (1, 3, 3, 2)),
            value("o0", (1, 3, 3, 1)),
        ],
    )


def attention_scores() -> Task:
    """softmax(a b / 2): a reduction over a reduction."""
    return task(
        [
            node("matmul", "i0 i1", "t0", transpose_b=True),
            node("scalar", "", "t1", value=0.5, dtype="float32"),
            node("mul", "t0 t1", "t2"),
            node("softmax", "t2", "o0", axis=-1),
        ],
        [
            value("i0", (2, 5, 3)),
            value("i1", (2, 7, 3)),
            value("t0", (2, 5, 7)),
            value("t1", ()),
            value("t2", (2, 5, 7)),
            value("o0", (2, 5, 7)),
        ],
    )
