"""Small tasks for tests of measuring. Out: Task values."""

from __future__ import annotations

from autotune.types import Attr, Layout, Task, TaskNode, TaskValue, TensorType, freeze_attrs

Halo = tuple[tuple[int, int], ...]


def value(
    name: str,
    role: str,
    shape: tuple[int, ...],
    layout: Layout | None = None,
    dtype: str = "float32",
) -> TaskValue:
    return TaskValue(
        name=name,
        type=TensorType(dtype=dtype, shape=shape),
        role=role,
        layout=layout or Layout.dense(shape),
    )


def matmul(m: int = 8, k: int = 16, n: int = 32) -> Task:
    return Task(
        nodes=(TaskNode(op="matmul", inputs=("i0", "c0"), outputs=("o0",)),),
        values=(
            value("i0", "input", (m, k)),
            value("c0", "constant", (k, n)),
            value("o0", "output", (m, n)),
        ),
        anchor=0,
    )


def conv(size: int = 8, channels: int = 16, halo: int = 1) -> Task:
    """3x3 convolution with padding 1 on a haloed input, haloed output."""
    attrs: dict[str, Attr] = {
        "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1,
    }  # fmt: skip
    shape = (1, size, size, channels)
    layout = Layout.haloed(shape, ((0, 0), (halo, halo), (halo, halo), (0, 0)))
    return Task(
        nodes=(
            TaskNode(op="conv2d", inputs=("i0", "c0"), outputs=("o0",), attrs=freeze_attrs(attrs)),
        ),
        values=(
            value("i0", "input", shape, layout),
            value("c0", "constant", (3, 3, channels, channels)),
            value("o0", "output", shape, layout),
        ),
        anchor=0,
    )


def elementwise(op: str, dtype: str, shape: tuple[int, ...] = (4, 6)) -> Task:
    return Task(
        nodes=(TaskNode(op=op, inputs=("i0",), outputs=("o0",)),),
        values=(
            value("i0", "input", shape, None, dtype),
            value("o0", "output", shape, None, dtype),
        ),
        anchor=0,
    )
