"""Hand-made partitions: chains of kernel calls over values of one shape, without a real model."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph.ir import Graph
from autotune.placement.types import KernelCall, Partition, Placement, Storage
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType


def task_of(op: str, types: Sequence[TensorType], result: TensorType, layout: Layout) -> Task:
    """A one-node task; every operand has `layout`, or its own dense one where shapes differ."""

    def at(type_: TensorType) -> Layout:
        return layout if type_.shape == result.shape else Layout.dense(type_.shape)

    inputs = [
        TaskValue(name=f"i{k}", type=t, role="input", layout=at(t)) for k, t in enumerate(types)
    ]
    output = TaskValue(name="o0", type=result, role="output", layout=layout)
    node = TaskNode(op=op, inputs=tuple(v.name for v in inputs), outputs=("o0",))
    return Task(nodes=(node,), values=(*inputs, output), anchor=0)


def partition_of(
    calls: Sequence[tuple[str, tuple[str, ...], str]],
    *,
    shapes: dict[str, tuple[int, ...]] | None = None,
    shape: tuple[int, ...] = (4, 5),
    haloed: Sequence[str] = (),
    halo: int = 1,
) -> Partition:
    """Calls (op, input values, output value). Values that no call writes are model inputs, those
    that no call reads model outputs; the others lie in the arena, `haloed` ones with a halo."""
    shapes = shapes or {}
    written = [out for _, _, out in calls]
    read = {v for _, ins, _ in calls for v in ins}
    types: dict[str, TensorType] = {}
    placements: dict[str, Placement] = {}
    storages: dict[str, Storage] = {}
    for value in dict.fromkeys([v for _, ins, out in calls for v in (*ins, out)]):
        types[value] = TensorType(dtype="float32", shape=shapes.get(value, shape))
        kind = "input" if value not in written else "arena" if value in read else "output"
        ring = ((halo, halo),) * len(types[value].shape)
        is_haloed = value in haloed and kind == "arena"
        layout = (
            Layout.haloed(types[value].shape, ring)
            if is_haloed
            else Layout.dense(types[value].shape)
        )
        before, after = layout.span(types[value].shape)
        storages[value] = Storage(
            name=value,
            kind=kind,
            dtype="float32",
            elements=before + after,
            zeroed=is_haloed,
            sharing=str(layout) if is_haloed else "",
            shape=types[value].shape if is_haloed else (),
            halo=layout.halo if is_haloed else (),
        )
        placements[value] = Placement(storage=value, offset=before, layout=layout)
    kernels = []
    for number, (op, ins, out) in enumerate(calls):
        task = task_of(op, [types[v] for v in ins], types[out], placements[out].layout)
        args = (*((f"i{k}", v) for k, v in enumerate(ins)), ("o0", out))
        kernels.append(KernelCall(task=task, args=args, name=f"call{number}"))
    graph = Graph(
        name="hand",
        inputs=tuple((v, types[v]) for v in types if v not in written),
        outputs=tuple((v, v) for v in types if v in written and v not in read),
        nodes=(),
        constants={},
        types=types,
    )
    return Partition(graph=graph, calls=tuple(kernels), placements=placements, storages=storages)
