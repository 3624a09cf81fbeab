"""Blocks of memory for arenas, weights, outputs, and kernels timed alone. In: a size. Out: zeroed
bytes, or arrays to be written.

They are aligned, and large ones lie on huge pages. What is mapped from files can be given back.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
ALIGNMENT = 64
"""Bytes that blocks begin at multiples of: a cache line, and the widest vector."""
HUGE_PAGE_BYTES = 2 << 20
"""Bytes of a huge page."""


def physical_bytes() -> int:
    """Memory of this machine; where the system does not say, more than any has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def zeroed_block(nbytes: int) -> Bytes:
    """`nbytes` zero bytes, aligned to 64; large blocks lie on huge pages where the system has them
    (a network's weights otherwise miss the TLB at every panel)."""
    if nbytes < HUGE_PAGE_BYTES:
        raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
        return _aligned(raw, nbytes, ALIGNMENT)
    # Shared memory, which is the default, gets no huge pages on most systems.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    region = mmap.mmap(-1, nbytes + HUGE_PAGE_BYTES, flags=private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            region.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return _aligned(np.frombuffer(region, np.uint8), nbytes, ALIGNMENT)
    return _aligned(np.frombuffer(region, np.uint8), nbytes, HUGE_PAGE_BYTES)


LEAST_ALIGNED_BYTES = 1 << 17
"""Size of an array below which finding an aligned place takes longer than it saves."""
_first_byte, _address_of = ctypes.c_char.from_buffer, ctypes.addressof


def fresh_array(shape: tuple[int, ...], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array to be written, which begins at a cache line: the allocator's begin at multiples of
    16 bytes, and stores of whole vectors there take up to twice as long."""
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes < LEAST_ALIGNED_BYTES:
        return np.empty(shape, kind)
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    return np.ndarray(shape, kind, raw, -address(raw) % ALIGNMENT)


def address(array: npt.NDArray[Any]) -> int:
    """Address of its first element. The buffer protocol is four times as fast as numpy's own
    description, but has nothing for arrays that are read-only or empty."""
    try:
        return _address_of(_first_byte(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


def drop_pages(array: npt.NDArray[Any]) -> None:
    """Give back the memory of an array that is a view of a mapped file: it is read again where it
    is needed again. Of another array, nothing."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    if isinstance(base, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped: mmap.mmap = base._mmap  # type: ignore[attr-defined]
        mapped.madvise(mmap.MADV_DONTNEED)


def _aligned(raw: Bytes, nbytes: int, alignment: int) -> Bytes:
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]
