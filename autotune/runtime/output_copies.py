"""Results that are no buffer of their own: constants, inputs, parts of a buffer, one value twice.

In: an image, and at a run the memory that its caller has for inputs and results. Out: what the
run's pointers are, and, when it has run, those results where the caller wants them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from autotune.memory import Bytes, address, fresh_array
from autotune.runtime.image import FIRST_INPUT, ModelImage, Port
from autotune.stored import stored_as
from autotune.types import dense_strides

_BYTES = np.dtype(np.uint8)


class OutputCopies:
    """For one run at a time."""

    def __init__(self, image: ModelImage) -> None:
        self._inputs = len(image.inputs)
        first, ports = FIRST_INPUT + self._inputs, image.outputs
        self._own: list[Bytes] = []
        """Memory of buffers that are no result as they are."""
        self._places: list[tuple[int, int]] = []
        """By buffer: the number of the result that it is, or -1 and its own address."""
        for number, nbytes in enumerate(image.output_bytes):
            at = first + number
            whole = (k for k, p in enumerate(ports) if p.base == at and p.fills(nbytes))
            place, own = next(whole, -1), 0
            if place < 0:
                self._own.append(fresh_array((nbytes,), _BYTES))
                own = address(self._own[-1])
            self._places.append((place, own))
        direct = {place for place, _ in self._places}
        self._copied = [(k, port) for k, port in enumerate(ports) if k not in direct]
        self._dense = {k for k, p in self._copied if p.strides == dense_strides(p.type.shape)}

    def placed(self, addresses: Sequence[int]) -> list[int]:
        """The run's pointers, of inputs and buffers, by the caller's, of inputs and results."""
        made = addresses[self._inputs :]
        buffers = [own if place < 0 else made[place] for place, own in self._places]
        return [*addresses[: self._inputs], *buffers]

    def copy(self, bases: ctypes.Array[ctypes.c_void_p], addresses: Sequence[int]) -> None:
        """Put the results that are no buffers where the caller wants them. `bases`: the run's
        pointers, from the blocks on."""
        for number, port in self._copied:
            source = (bases[port.base] or 0) + port.offset_bytes
            target = addresses[self._inputs + number]
            if number in self._dense:
                ctypes.memmove(target, source, port.type.nbytes)
            else:
                _copy_strided(port, source, target)


def _copy_strided(port: Port, source: int, target: int) -> None:
    """A result with elements, from the place of its first one, to memory where it lies dense."""
    kind = np.dtype(stored_as(port.type.dtype))
    shape, steps = port.type.shape, [s * kind.itemsize for s in port.strides]
    reaches = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    low = sum(reach for reach in reaches if reach < 0)
    end = sum(reach for reach in reaches if reach > 0) + kind.itemsize
    there = np.ndarray(shape, kind, _bytes_at(source + low, end - low), -low, steps)
    np.ndarray(shape, kind, _bytes_at(target, port.type.nbytes))[...] = there


def _bytes_at(place: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * nbytes).from_address(place))
