"""Run a partition call by call with numpy, on real storages with their strides and halos.

In: a partition and feeds. Out: the model's outputs by public name. It proves the placements right:
arena memory starts as NaN (halos as zero), kernels read and write through strides only, and every
halo that a task asks for must hold zeros when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autotune.ops import OPS
from autotune.placement.types import KernelCall, Partition, Placement
from autotune.types import Array, Layout, Task, TensorType


def run_partition(
    part: Partition, feeds: Mapping[str, Array], dtype: str = "float64"
) -> dict[str, Array]:
    """Outputs by public name, floats computed in `dtype`."""
    memory = {name: _fresh(part, name, dtype) for name in part.storages}
    for name, type_ in part.graph.inputs:
        _view(memory, part.placements[name], type_)[...] = feeds[name]
    for name, array in part.graph.constants.items():
        if name in part.placements:
            _view(memory, part.placements[name], part.graph.types[name])[...] = array
    for call in part.calls:
        _run_call(part, call, memory)
    return {
        public: _view(memory, part.placements[value], part.graph.types[value]).copy()
        for public, value in part.graph.outputs
    }


def _fresh(part: Partition, name: str, dtype: str) -> Array:
    storage = part.storages[name]
    kind = np.dtype(dtype if storage.dtype.startswith("float") else storage.dtype)
    junk = np.nan if kind.kind == "f" else 77
    return np.full(storage.elements, 0 if storage.zeroed else junk, dtype=kind)


def _run_call(part: Partition, call: KernelCall, memory: dict[str, Array]) -> None:
    args = dict(call.args)
    values: dict[str, Array] = {}
    for param in call.task.by_role("input") + call.task.by_role("constant"):
        place = part.placements[args[param.name]]
        _check_halo(memory[place.storage], place.offset, param.layout, param.type.shape)
        values[param.name] = _window(
            memory[place.storage], place.offset, param.layout.strides, param.type.shape
        )
    run_task(call.task, values)
    for param in call.task.by_role("output"):
        place = part.placements[args[param.name]]
        out = _window(memory[place.storage], place.offset, param.layout.strides, param.type.shape)
        out[...] = values[param.name]


def run_task(task: Task, values: dict[str, Array]) -> None:
    """Evaluate every node into `values`."""
    for node in task.nodes:
        arrays = [values[i] for i in node.inputs]
        values[node.outputs[0]] = np.asarray(OPS.get(node.op).reference(arrays, dict(node.attrs)))


def _view(memory: dict[str, Array], place: Placement, type_: TensorType) -> Array:
    return _window(memory[place.storage], place.offset, place.layout.strides, type_.shape)


def _window(flat: Array, offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    last = offset + sum(s * (e - 1) for s, e in zip(strides, shape, strict=True))
    if 0 not in shape:
        assert 0 <= offset <= last < len(flat), (offset, strides, shape, len(flat))
    steps = [s * flat.itemsize for s in strides]
    return as_strided(flat[offset:], shape, steps)


def _check_halo(flat: Array, offset: int, layout: Layout, shape: tuple[int, ...]) -> None:
    start = offset - sum(s * b for s, (b, _) in zip(layout.strides, layout.halo, strict=True))
    padded = tuple(e + b + a for e, (b, a) in zip(shape, layout.halo, strict=True))
    around = _window(flat, start, layout.strides, padded).copy()
    inner = tuple(slice(b, b + e) for e, (b, _) in zip(shape, layout.halo, strict=True))
    around[inner] = 0
    assert not around.any(), f"halo {layout.halo} of {shape} holds values"
