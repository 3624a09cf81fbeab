"""Constants of a model in one block of memory. In: arrays, and how kernels want them packed. Out:
byte offsets, each content once, and the block.

Compiles of one model for several sizes may fill the same block (`SharedConstants`).
"""

from __future__ import annotations

import hashlib

import numpy as np

from autotune.errors import AutotuneError
from autotune.memory import ALIGNMENT, Bytes, zeroed_block
from autotune.program.ir import Pack
from autotune.program.packing import apply_pack
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

    def add(self, flat: Bytes, digest: bytes) -> int:
        """Byte offset of these bytes. Raises NoRoomError."""
        if digest not in self._by_digest:
            start, end = self.used_bytes, self.used_bytes + _aligned(flat.nbytes)
            if end > self._block.nbytes:
                raise NoRoomError(f"{end} bytes of constants, {self._block.nbytes} reserved")
            self._block[start : start + flat.nbytes] = flat
            self._by_digest[digest], self.used_bytes = start, end
        return self._by_digest[digest]

    def block(self) -> Bytes:
        """What is filled so far."""
        return self._block[: self.used_bytes]


class ConstantBlock:
    """Packed constants of one compile, each content once, at aligned offsets of one block."""

    def __init__(self, shared: SharedConstants | None = None) -> None:
        """`shared`: the block that they go to, instead of one of their own."""
        self._shared = shared
        self._arrays: list[tuple[int, Bytes]] = []
        self._by_digest: dict[bytes, int] = {}
        self._by_source: dict[tuple[str, Pack | None], int] = {}
        self._size = 0

    def add(self, name: str, array: Array, pack: Pack | None = None) -> int:
        """Byte offset of the constant `name` in the layout of `pack`. Raises NoRoomError."""
        source = (name, pack)
        if source not in self._by_source:
            packed = apply_pack(pack, array) if pack else np.ascontiguousarray(array)
            self._by_source[source] = self._store(packed)
        return self._by_source[source]

    def _store(self, array: Array) -> int:
        flat = array.reshape(-1).view(np.uint8)
        digest = hashlib.sha256(flat.data).digest()
        if self._shared is not None:
            return self._shared.add(flat, digest)
        if digest not in self._by_digest:
            self._by_digest[digest] = self._size
            self._arrays.append((self._size, flat))
            self._size += _aligned(flat.nbytes)
        return self._by_digest[digest]

    def block(self) -> Bytes:
        """All constants in one piece of memory."""
        if self._shared is not None:
            return self._shared.block()
        out = zeroed_block(self._size)
        for at, flat in self._arrays:
            out[at : at + flat.nbytes] = flat
        return out


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
