"""Constants of a model in one block of memory. In: arrays, and how kernels want them packed. Out:
byte offsets, each content once, and the block.

Compiles of one model for several sizes may fill the same block (`SharedConstants`).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable

import numpy as np

from autotune.errors import AutotuneError
from autotune.memory import ALIGNMENT, Bytes, drop_pages, zeroed_block
from autotune.program.ir import Pack
from autotune.program.packing import pack_into, packed_dtype, packed_shape
from autotune.types import Array


class NoRoomError(AutotuneError):
    """Shared constants are more than was reserved for them."""


class SharedConstants:
    """A block that never moves, since models that are compiled already read from it: its addresses
    are reserved at once, its memory is taken as it is filled."""

    def __init__(self, reserved_bytes: int) -> None:
        self._block = zeroed_block(reserved_bytes)
        self._by_digest: dict[bytes, int] = {}
        self.used_bytes = 0

    def add(self, nbytes: int, fill: Callable[[Bytes], None]) -> int:
        """Byte offset of what `fill` writes into so many bytes, the same for the same bytes.
        Raises NoRoomError."""
        start, end = self.used_bytes, self.used_bytes + aligned(nbytes)
        room = end <= self._block.nbytes
        new = self._block[start : start + nbytes] if room else np.empty(nbytes, np.uint8)
        fill(new)
        digest = hashlib.sha256(new.data).digest()
        if digest in self._by_digest:
            new[:] = 0
        elif room:
            self._by_digest[digest], self.used_bytes = start, end
        else:
            raise NoRoomError(f"{end} bytes of constants, {self._block.nbytes} reserved")
        return self._by_digest[digest]

    def block(self) -> Bytes:
        """What is filled so far."""
        return self._block[: self.used_bytes]


class ConstantBlock:
    """Packed constants of one compile, each content once, at aligned offsets of one block."""

    def __init__(self, shared: SharedConstants) -> None:
        """`shared`: the block that they go to."""
        self._shared = shared
        self._by_source: dict[tuple[str, Pack | None], int] = {}

    def add(self, name: str, array: Array, pack: Pack | None = None) -> int:
        """Byte offset of the constant `name` in the layout of `pack`. Raises NoRoomError."""
        source = (name, pack)
        if source not in self._by_source:
            self._by_source[source] = self._shared.add(
                packed_bytes(array, pack), functools.partial(_fill, array, pack)
            )
        return self._by_source[source]

    def block(self) -> Bytes:
        """All constants in one piece of memory."""
        return self._shared.block()


def packed_bytes(array: Array, pack: Pack | None) -> int:
    """Bytes of a constant in the layout of `pack`."""
    if pack is None:
        return array.nbytes
    return math.prod(packed_shape(pack)) * packed_dtype(pack, array).itemsize


def aligned(nbytes: int) -> int:
    """Bytes that a constant takes of a block."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _fill(array: Array, pack: Pack | None, out: Bytes) -> None:
    if pack is None:
        out.view(array.dtype).reshape(array.shape)[...] = array
        drop_pages(array)
    else:
        pack_into(pack, array, out.view(packed_dtype(pack, array)).reshape(packed_shape(pack)))
