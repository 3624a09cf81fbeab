"""Run a program element by element: the slow oracle of what schedule steps may not change.

In: a program and dense arrays by param name (constants unpacked). Out: the output array. Parallel,
vector and unrolled loops run serially, and so do blocks and threads: a nest of thread loops runs
for all threads before the next one starts; what only that order makes right, for lack of a barrier
or between blocks, is found by `tests.interpreter.races`. Memory that a program must not rely on
(new buffers, the output) starts as nan or an odd integer. Any access outside a buffer and its
halo, and a store of another dtype than the buffer's, is a VerifyError.

The program is run as the Python function that `tests.interpreter.translate` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.program.ir import Buffer, Pack, Program
from autotune.program.packing import apply_pack
from autotune.stored import widen_bfloat16
from autotune.types import Array
from tests.interpreter.memory import Memory, given, interior_of, new_memory
from tests.interpreter.translate import translated


def run(program: Program, arrays: Mapping[str, Array]) -> Array:
    """The output of a program. `arrays` holds every param that is not written."""
    packs = {p.buffer: p for p in program.packs}
    memory = {
        buffer.name: new_memory(buffer, zero_halo=True)
        if buffer.written
        else _read(buffer, packs.get(buffer.name), np.asarray(arrays[buffer.name]))
        for buffer in program.params
    }
    with np.errstate(all="ignore"):
        translated(program, memory)()
    written = next(b for b in program.params if b.written)
    return interior_of(memory[written.name])


def _read(buffer: Buffer, pack: Pack | None, array: Array) -> Memory:
    """A param that is only read, packed where its weights are."""
    if pack is None:
        array = array.reshape(buffer.shape)
        if buffer.dtype == "float16":
            array = array.astype(np.float16)
        return given(buffer.name, array, buffer.halo)
    packed = apply_pack(pack, array)
    if pack.dtype == "bfloat16":
        packed = widen_bfloat16(packed)
    elif pack.dtype == "float16":
        packed = packed.view(np.float16)
    return given(buffer.name, packed, ((0, 0),) * packed.ndim)
