"""An op applied to inputs of some types, and the task of it alone."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.ops import OPS
from autotune.types import (
    Attr,
    Layout,
    Task,
    TaskNode,
    TaskValue,
    TensorType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An op applied to inputs of some types; the inputs in `constants` are weights."""

    op: str
    types: tuple[TensorType, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    constants: tuple[int, ...] = ()


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(dtype=dtype, shape=shape)


def single_task(case: Case, halo: bool = False) -> Task:
    """A task of the one op; with `halo` its inputs lie in storage that has the zeros it reads."""
    names = [f"{'c' if k in case.constants else 'i'}{k}" for k in range(len(case.types))]
    op = OPS.get(case.op)
    output = op.infer(case.types, dict(case.attrs))
    computes = op.expression(
        list(zip(names, case.types, strict=True)), ("o0", output), dict(case.attrs)
    )
    pads = {tensor: p for c in computes for tensor, p in c.pads} if halo else {}
    values = []
    for name, type_ in zip(names, case.types, strict=True):
        layout = Layout.haloed(type_.shape, pads.get(name, ((0, 0),) * len(type_.shape)))
        role = "constant" if name.startswith("c") else "input"
        values.append(TaskValue(name=name, type=type_, role=role, layout=layout))
    layout = Layout.dense(output.shape)
    values.append(TaskValue(name="o0", type=output, role="output", layout=layout))
    node = TaskNode(op=case.op, inputs=tuple(names), outputs=("o0",), attrs=case.attrs)
    return Task(nodes=(node,), values=tuple(values), anchor=0)
