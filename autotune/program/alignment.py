"""Alignment of buffers that GPUs reach in vectors. In: a buffer of a program. Out: bytes.

The memory of every tensor, halo included, starts at a multiple of 16 bytes; strides tell the rest.
"""

from __future__ import annotations

import math

from autotune.program.ir import Buffer
from autotune.types import ITEM_BYTES, dense_strides

ALIGN_BYTES = 16
"""Bytes that every buffer's memory is aligned to, and that the widest access takes."""


def first_alignment(buffer: Buffer) -> int:
    """What the address of element (0, 0, ...) is a multiple of.

    A param may lie behind a halo that the kernel does not know of, or be some channels of a larger
    tensor: then its runs are shorter than the steps between them, and nothing is known. Where
    params begin elsewhere, whoever builds the kernel says so (`unaligned`)."""
    if buffer.unaligned:
        return ITEM_BYTES[buffer.dtype]
    dense = buffer.strides == dense_strides(buffer.shape) and len(buffer.shape) <= 2
    if buffer.scope != "param" or buffer.constant or dense:
        return ALIGN_BYTES
    item = ITEM_BYTES[buffer.dtype]
    dims = list(zip(buffer.strides, buffer.shape, buffer.halo, strict=True))
    runs = [extent + sum(halo) for stride, extent, halo in dims if stride == 1]
    steps = [stride for stride, _, _ in dims if stride > 1]
    if runs and steps and min(steps) > max(runs):
        return item
    return math.gcd(ALIGN_BYTES, *(stride * item for stride in steps))
