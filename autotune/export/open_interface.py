"""The interface of an exported model of open sizes: its symbols, its tensors, and how an instance
is laid out in memory.

In: an OpenImage. Out: an OpenInterface. An instance's head holds what its sizes make: counts,
the values of rows, the calls to run, shapes. Arena, workspace and buffers of outputs are a block
behind it, which grows where sizes need more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from autotune.export.interface import FIELDS, WORD_BYTES, Frame, aligned
from autotune.runtime.open_image import OpenImage, OpenPort
from autotune.size_ranges import SizedType, SizeRange

TENSOR_WORDS = 5
"""Words that a `model_tensor` takes at most."""
OUTPUT_WORDS = 4
"""An output's words: dimensions to copy one by one, bytes of a block, distance in its buffer,
whether the kernels write it as callers want it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTensor:
    """An input or output, whose dimensions are numbers or symbols."""

    port: OpenPort
    kind: SizedType


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the parts of an instance's head begin, in bytes."""

    block: int
    """The pointer to the block behind the head."""
    capacity: int
    needed: int
    """Bytes of the block: had, and needed at the sizes given last."""
    sized: int
    """Whether it has sizes."""
    offsets: int
    """By pointer, where in the block it points to."""
    counts: int
    values: int
    calls: int
    tensors: int
    shapes: int
    strides: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInterface(Frame):
    """An exported model of open sizes from outside, and an instance from inside."""

    symbols: tuple[tuple[str, SizeRange], ...]
    inputs: tuple[OpenTensor, ...]
    outputs: tuple[OpenTensor, ...]
    places: Places = field(repr=False)
    counts: int
    """The number of the pointer to counts; those behind it are made while calls are."""

    @property
    def tensors(self) -> tuple[OpenTensor, ...]:
        return (*self.inputs, *self.outputs)

    def shape_place(self, tensor: int) -> int:
        """Words before a tensor's shape among all shapes; those of strides lie alike."""
        return sum(len(t.kind.shape) for t in self.tensors[:tensor])


def _ranked(port: OpenPort, kind: SizedType) -> SizedType:
    """The type with all dimensions, of an output whose model leaves them out."""
    if len(kind.shape) == len(port.shape) and "..." not in kind.shape:
        return kind
    return dataclasses.replace(kind, shape=("?",) * len(port.shape))


def open_interface(image: OpenImage, prefix: str) -> OpenInterface:
    """`prefix`: what every name in C begins with."""
    sides = ((image.inputs, image.types.inputs), (image.outputs, image.types.outputs))
    inputs, outputs = (
        tuple(OpenTensor(port=port, kind=_ranked(port, dict(kinds)[port.name])) for port in ports)
        for ports, kinds in sides
    )
    pointers = max(image.pointers, image.table.pointers)
    tensors = (*inputs, *outputs)
    ranks = sum(len(t.kind.shape) for t in tensors)
    words = {
        "block": 1,
        "capacity": 1,
        "needed": 1,
        "sized": 1,
        "offsets": pointers,
        "counts": len(image.units),
        "values": image.rows + 1,
        "calls": len(image.table.choices) * image.table.words.shape[1],
        "tensors": len(tensors) * TENSOR_WORDS,
        "shapes": ranks,
        "strides": ranks,
        "outputs": len(outputs) * OUTPUT_WORDS,
    }
    places, at = {}, (pointers + FIELDS) * WORD_BYTES
    for name, count in words.items():
        places[name] = at
        at += count * WORD_BYTES
    return OpenInterface(
        prefix=prefix,
        pointers=pointers,
        weight_bytes=image.constants.nbytes,
        memory_bytes=aligned(at),
        symbols=image.types.ranges,
        inputs=inputs,
        outputs=outputs,
        places=Places(**places),
        counts=image.pointers - 1,
    )
