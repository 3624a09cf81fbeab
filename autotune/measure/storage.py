"""Memory for a kernel's arguments. In: task values and arrays. Out: aligned storage and addresses.

Inputs lie as their layout says: zeros in the halo, NaN in any gap between elements that belongs to
other tensors. Outputs are surrounded by a pattern, so that a write outside is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.memory import ALIGNMENT, HUGE_PAGE_BYTES, zeroed_block
from autotune.stored import stored, stored_as, widen_bfloat16
from autotune.types import ITEM_BYTES, Array, TaskValue

GUARD_BYTES = 1024
"""Bytes before and behind an operand that nobody may write."""
PART_BYTES = 64 << 10
"""Blocks from here on take huge pages of their own: smaller ones lie on too few to matter."""
PATTERN = 0xA5
"""Byte that they are filled with."""
GARBAGE = 0xFF
"""Bytes that read as NaN in floating point."""


@dataclass(frozen=True, slots=True)
class GuardedTensor:
    """`block`: all its bytes, guards included. `view`: the tensor's elements in it as they lie
    there. `address`: of element 0,0,..."""

    block: Array
    view: Array
    address: int
    dtype: str = ""
    """The tensor's type of elements; empty: that of the view."""


def aligned_bytes(count: int, fill: int) -> Array:
    """A uint8 array of `count` elements at a multiple of ALIGNMENT; on huge pages where a model
    has them: all but small blocks, because there they are parts of a large one."""
    if count >= PART_BYTES:
        out: Array = zeroed_block(max(count, HUGE_PAGE_BYTES))[:count]
        out[...] = fill
        return out
    raw = np.full(count + ALIGNMENT, fill, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]


def place(value: TaskValue, fill: int) -> GuardedTensor:
    """Storage for a value by its layout, every byte `fill`."""
    item = ITEM_BYTES[value.type.dtype]
    shape, layout = value.type.shape, value.layout
    before, after = layout.span(shape)
    block = aligned_bytes(2 * GUARD_BYTES + (before + after) * item, fill)
    first = GUARD_BYTES + before * item
    dtype = np.dtype("uint8" if value.type.dtype == "bool" else stored_as(value.type.dtype))
    strides = tuple(s * item for s in layout.strides)
    view = np.ndarray(shape, dtype, buffer=block.data, offset=first, strides=strides)
    return GuardedTensor(block, view, block.ctypes.data + first, value.type.dtype)


def place_input(value: TaskValue, array: Array) -> GuardedTensor:
    """An input's data in its layout."""
    storage = place(value, GARBAGE)
    item = ITEM_BYTES[value.type.dtype]
    halo, strides = value.layout.halo, value.layout.strides
    if array.size:
        before = sum(s * b for s, (b, _) in zip(strides, halo, strict=True))
        padded = np.ndarray(
            tuple(e + b + a for e, (b, a) in zip(value.type.shape, halo, strict=True)),
            storage.view.dtype,
            buffer=storage.block.data,
            offset=storage.address - storage.block.ctypes.data - before * item,
            strides=storage.view.strides,
        )
        padded[...] = 0
        storage.view[...] = stored(array, value.type.dtype)
    return storage


def place_dense(array: Array) -> GuardedTensor:
    """A constant: dense, aligned, followed by a guard that may be read."""
    block = aligned_bytes(array.nbytes + GUARD_BYTES, 0)
    view = block[: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return GuardedTensor(block, view, block.ctypes.data)


def reset_output(storage: GuardedTensor) -> None:
    """Pattern around the elements, garbage in them."""
    storage.block[...] = PATTERN
    unset = np.nan if storage.view.dtype.kind == "f" else _pattern(storage.view.dtype)
    storage.view[...] = stored(np.asarray(np.nan), "bfloat16") if _short(storage) else unset


def take_output(storage: GuardedTensor) -> tuple[Array, int]:
    """(a dense copy of the elements, how many bytes outside of them were overwritten)."""
    out = widen_bfloat16(storage.view) if _short(storage) else storage.view.copy()
    storage.view[...] = _pattern(storage.view.dtype)
    return out, int(np.count_nonzero(storage.block != PATTERN))


def _short(storage: GuardedTensor) -> bool:
    """Whether the elements are bits of bfloat16."""
    return storage.dtype == "bfloat16"


def _pattern(dtype: np.dtype[np.generic]) -> Array:
    return np.frombuffer(bytes([PATTERN]) * dtype.itemsize, dtype)[0]  # type: ignore[no-any-return]
