"""An op applied to inputs of some types, and the task of it alone."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from autotune.ops import OPS
from autotune.placement.views import canonical_layout
from autotune.types import Attr, Layout, Task, TaskNode, TaskValue, TensorType


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


def in_other_orders(task: Task, seed: int) -> Task:
    """The task with inputs and outputs without a halo as views leave them: dimensions in any
    order, half of the values with gaps between their elements, half of the outputs dense.
    Contractions and pools have the last dimension side by side, as placement grants them."""
    rng = np.random.default_rng(seed)
    steady = OPS.get(task.op).kind in ("contraction", "pool")
    values = []
    for value in task.values:
        free = value.role == "input" or (value.role == "output" and rng.random() < 0.5)
        free = free and not any(map(any, value.layout.halo))
        layout = _other_layout(value.type.shape, steady, rng) if free else value.layout
        values.append(dataclasses.replace(value, layout=layout))
    return dataclasses.replace(task, values=tuple(values))


def _other_layout(shape: tuple[int, ...], steady: bool, rng: np.random.Generator) -> Layout:
    rank, apart = len(shape), rng.random() < 0.5
    order = [*rng.permutation(rank - 1), rank - 1] if steady and rank else rng.permutation(rank)
    strides, step = [0] * rank, 1
    for position, d in enumerate(reversed(order)):
        if apart and not (steady and position == 0):
            step *= int(rng.choice((1, 1, 1, 2, 3)))
        strides[d] = step
        step = step * shape[d] + (int(rng.choice((0, 0, 1, 5))) if apart else 0)
    layout = canonical_layout(shape, Layout(strides=tuple(strides), halo=((0, 0),) * rank))
    return Layout.dense(shape) if math.prod(shape) == 0 else layout
