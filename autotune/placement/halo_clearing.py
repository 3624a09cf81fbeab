"""Zeros around a value, written again. In: a storage with a halo. Out: a program that does it.

Where other values use the memory of a halo meanwhile, its zeros are gone; what the halo surrounds
is left alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

from autotune.placement.types import Storage
from autotune.program.ir import Buffer, Const, For, Index, Program, Stmt, Store, clamp, index
from autotune.program.rewrite import in_loops
from autotune.sizes import ceil_div, is_size, surely_at_most, symbols_of
from autotune.target import Target
from autotune.types import ITEM_BYTES, Layout

_BLOCK = "block"


def halo_symbol(storage: Storage) -> str:
    """Equal for storages with equal programs."""
    text = f"{storage.dtype} {storage.shape} {storage.halo}"
    return "halo_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def halo_program(storage: Storage, target: Target) -> Program:
    """Its only param is the storage, element by element as they lie in memory."""
    layout = Layout.haloed(storage.shape, storage.halo)
    lanes = target.lanes(ITEM_BYTES[storage.dtype])
    body: list[Stmt] = []
    for dim, (extent, (before, after)) in enumerate(zip(storage.shape, layout.halo, strict=True)):
        step = layout.strides[dim]
        # Of the dimensions around it, what lies inside: the rest is zeroed with these.
        around = list(zip(storage.shape[:dim], layout.strides, layout.halo, strict=False))
        for side, first, count in (("before", 0, before), ("after", before + extent, after)):
            name = f"{side}{dim}"
            start = Index((), first * step + sum(b * s for _, s, (b, _) in around))
            loops = [(f"{name}_{number}", e) for number, (e, _, _) in enumerate(around)]
            for (loop, _), (_, stride, _) in zip(loops, around, strict=True):
                start = start + index(loop) * stride
            zeros = _zeros(name, storage.dtype, start, count * step, lanes)
            body += in_loops(loops, zeros) if zeros else ()
    block = Buffer.dense(_BLOCK, storage.dtype, (storage.elements,), "param")
    block = dataclasses.replace(block, written=True)
    symbols = tuple(sorted(s.name for s in symbols_of(storage.elements)))
    return Program(halo_symbol(storage), (block,), tuple(body), symbols=symbols)


def _zeros(name: str, dtype: str, start: Index, count: int, lanes: int) -> tuple[Stmt, ...]:
    """So many zeros side by side, in vectors and a rest."""
    zero = Const(0.0 if "float" in dtype else 0, dtype)

    def vector(loop: str, first: Index, extent: int) -> For:
        store = Store(_BLOCK, (first + index(loop),), zero)
        return For(loop, extent, "vector", (store,))

    if is_size(count):
        return (_overlapping(name, vector, start, count, lanes),)
    whole, rest = divmod(count, lanes)
    out: list[Stmt] = []
    if whole:
        inner = vector(f"{name}_lane", start + index(f"{name}_block") * lanes, lanes)
        out.append(For(f"{name}_block", whole, "serial", (inner,)))
    if rest:
        out.append(vector(f"{name}_rest", start + whole * lanes, rest))
    return tuple(out)


def _overlapping(
    name: str, vector: Callable[[str, Index, int], For], start: Index, count: int, lanes: int
) -> For:
    """The same where only a run knows how many: the last vector ends where the zeros do."""
    wide = lanes if surely_at_most(lanes, count) else 1
    first = clamp(index(f"{name}_block") * wide, 0, count - wide)
    inner = vector(f"{name}_lane", start + first, wide)
    return For(f"{name}_block", ceil_div(count, wide), "serial", (inner,))
