"""A model's inputs and outputs as dense bytes, little-endian, in its order: what files and links
carry. In: blocks, or arrays by name. Out: the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import DeviceError, FeedError
from autotune.runtime.model import CompiledModel, KernelTime, ModelTimes
from autotune.runtime.results import float_type
from autotune.stored import stored_as
from autotune.types import Array


def feeds_of(model: CompiledModel, inputs: Sequence[bytes]) -> dict[str, Array]:
    """Arrays of a model's inputs in their order. Raises FeedError."""
    if len(inputs) != len(model.inputs):
        raise FeedError(f"expected {len(model.inputs)} inputs, got {len(inputs)}")
    feeds: dict[str, Array] = {}
    for (name, kind), data in zip(model.inputs.items(), inputs, strict=True):
        item = np.dtype(stored_as(kind.dtype))
        expected = kind.size * item.itemsize
        if len(data) != expected:
            raise FeedError(f"input {name} is {kind}, {expected} bytes, got {len(data)}")
        feeds[name] = np.frombuffer(data, item).reshape(kind.shape)
    return feeds


def dense_bytes(model: CompiledModel, feeds: Mapping[str, Array]) -> list[bytes]:
    """Inputs, as `feeds_of` reads them. Raises FeedError."""
    return [np.ascontiguousarray(array).tobytes() for array in model.checked(feeds)]


def outputs_from(model: CompiledModel, blocks: Sequence[bytes]) -> dict[str, Array]:
    """A run's outputs by name. Raises DeviceError where they are not the model's."""
    found: dict[str, Array] = {}
    kinds = [(name, kind, float_type(kind.dtype)) for name, kind in model.outputs.items()]
    sizes = [kind.size * item.itemsize for _, kind, item in kinds]
    if sizes != [len(block) for block in blocks]:
        raise DeviceError(f"expected outputs of {sizes} bytes, got {[len(b) for b in blocks]}")
    for (name, kind, item), block in zip(kinds, blocks, strict=True):
        found[name] = np.frombuffer(block, item).reshape(kind.shape)
    return found


def times_from(
    model: CompiledModel, latency_s: Sequence[float], kernels_s: Sequence[float]
) -> ModelTimes:
    """What another machine measured. Raises DeviceError where it is not of this model."""
    kernels = model.image.kernels
    if not latency_s or len(kernels_s) != len(kernels):
        raise DeviceError(f"expected times of {len(kernels)} kernels, got {len(kernels_s)}")
    rows = zip(kernels, kernels_s, strict=True)
    return ModelTimes(
        latency_s=tuple(latency_s),
        kernels=tuple(KernelTime(kernel=kernel, time_s=time_s) for kernel, time_s in rows),
    )
