"""The C interface of an exported model, and the memory of an instance.

In: a ModelImage. Out: its inputs and outputs as C knows them, and byte offsets inside an instance:
first, of libraries, the array of pointers that the model's entry reads, then the arena, the
workspace, and room for outputs that the kernels do not write as the caller wants them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.memory import ALIGNMENT
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, WORKSPACE, ModelImage, Port
from autotune.types import ITEM_BYTES, dense_strides

FIELDS = 2
"""Words of an instance behind its pointers: whether its memory is its own, and the mapped weights
that are."""
WORD_BYTES = 8
"""Bytes of a pointer on 64-bit machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedOutput:
    """An output that is copied out after a run. Dimensions that lie dense are one block."""

    number: int
    base: int
    offset_bytes: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How names begin, and how every instance does. Offsets in bytes."""

    prefix: str
    pointers: int
    weight_bytes: int
    memory_bytes: int
    """An instance takes so many, from a multiple of 64 on; of open sizes, what needs no sizes."""

    @property
    def fields_offset(self) -> int:
        """Bytes before the words behind the pointers."""
        return self.pointers * WORD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface(Frame):
    """An exported model from outside, and an instance from inside. Offsets in bytes."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    direct: Mapping[int, int] = field(repr=False)
    """Output number -> the pointer that the kernels write it through."""
    copied: tuple[CopiedOutput, ...]
    blocks: Mapping[int, int] = field(repr=False)
    """Pointer's number -> the offset that it always has: arena, workspace, copied outputs."""


def interface_of(image: ModelImage, prefix: str, *, keeps_pointers: bool = True) -> Interface:
    """`prefix`: what every name in C begins with; `keeps_pointers`: an instance begins with them,
    else every run works out where things are, and an instance is what kernels work in."""
    first = FIRST_INPUT + len(image.inputs)
    direct: dict[int, int] = {}
    for slot, nbytes in enumerate(image.output_bytes):
        base = first + slot
        for number, port in enumerate(image.outputs):
            if port.base == base and port.fills(nbytes):
                direct[number] = base
                break
    kept = {ARENA: image.arena_bytes, WORKSPACE: image.workspace_bytes}
    for slot, nbytes in enumerate(image.output_bytes):
        if first + slot not in direct.values():
            kept[first + slot] = nbytes
    pointers = first + len(image.output_bytes)
    at = aligned((pointers + FIELDS) * WORD_BYTES) if keeps_pointers else 0
    blocks = {}
    for base, nbytes in kept.items():
        blocks[base] = at
        at += aligned(nbytes)
    copied = tuple(_copied(n, p) for n, p in enumerate(image.outputs) if n not in direct)
    return Interface(
        prefix=prefix,
        inputs=image.inputs,
        outputs=image.outputs,
        direct=direct,
        copied=copied,
        blocks=blocks,
        pointers=pointers,
        memory_bytes=max(at, ALIGNMENT),
        weight_bytes=image.constants.nbytes,
    )


def port_bytes(port: Port) -> int:
    """Bytes of an input or output as a caller has it: dense, in the order of its dimensions."""
    return port.type.size * ITEM_BYTES[port.type.dtype]


def _copied(number: int, port: Port) -> CopiedOutput:
    item, shape, strides = ITEM_BYTES[port.type.dtype], port.type.shape, port.strides
    dense = len(shape)
    while dense and strides[dense - 1 :] == dense_strides(shape)[dense - 1 :]:
        dense -= 1
    return CopiedOutput(
        number=number,
        base=port.base,
        offset_bytes=port.offset_bytes,
        extents=shape[:dense],
        strides_bytes=tuple(s * item for s in strides[:dense]),
        block_bytes=math.prod(shape[dense:]) * item,
    )


def aligned(nbytes: int) -> int:
    """The next multiple of what blocks begin at."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


WEIGHTS_POINTER = CONSTANTS
