"""The footprint of a kernel, cut by reuse distance. In: its blocks, and a Timing. Out: pieces.

A value whose parts have different reuse distances is cut: its beginning was touched first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.measure.storage import GuardedTensor
from autotune.measure.types import Timing
from autotune.placement.reuse_distance import CODE
from autotune.target import Target
from autotune.types import Array

ALWAYS = 1 << 50
"""Bytes that have passed since a moment before the last run of any model."""
_BEFORE = 0.5
"""What the kernel before moved, of the second cache, where nothing tells."""
_LINE_BYTES = 64
"""Bytes of a cache line."""

_Part = tuple[int, float, float]
"""Bytes, seconds, share, as in an `ReuseDistance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes that were touched last before other `age_bytes` were, `age_s` ago. `sparse`: what is
    touched of a block that is mostly others'."""

    block: Array
    age_bytes: int
    age_s: float
    sparse: Array | None = None

    @property
    def touched(self) -> Array:
        return self.block if self.sparse is None else self.sparse


def pieces_of(
    timing: Timing,
    target: Target,
    *,
    inputs: Mapping[str, GuardedTensor],
    constants: Mapping[str, GuardedTensor],
    output: tuple[str, GuardedTensor],
    workspace: Array,
    code: Array | None,
) -> tuple[Piece, ...]:
    """Oldest first. What the timing does not know: inputs were just written, weights and code are
    as old as a run of the model, the output takes the place of what was used shortly before. So
    does the workspace, which all kernels share; few kernels need one beyond the second cache."""
    near_bytes = target.l2_bytes * target.threads
    before = int(_BEFORE * near_bytes), 0.0, 1.0
    old = ALWAYS, timing.apart_s, 1.0
    distances: dict[str, list[_Part]] = {}
    for name, age_bytes, age_s, share in timing.reuse_distances:
        distances.setdefault(name, []).append((age_bytes, age_s, share))
    found = [
        *_cut(workspace[:near_bytes], [before]),
        *_cut(workspace[near_bytes:], [old]),
        *_cut(workspace[:0] if code is None else code, distances.get(CODE, [old])),
    ]
    usual = [
        *((*item, (0, 0.0, 1.0)) for item in inputs.items()),
        *((*item, old) for item in constants.items()),
        (*output, before),
    ]
    for name, storage, part in usual:
        known = distances.get(name, [part])
        if 2 * storage.view.nbytes > len(storage.block):
            found += _cut(storage.block, known)
        else:
            found.append(_whole(storage, known))
    return tuple(sorted((p for p in found if len(p.block)), key=lambda p: -p.age_bytes))


def _cut(block: Array, parts: Sequence[_Part]) -> Iterator[Piece]:
    """Parts of the block, in whole lines, the oldest first."""
    start, done = 0, 0.0
    for age_bytes, age_s, share in sorted(parts, reverse=True):
        done += share
        stop = min(round(done * len(block) / _LINE_BYTES) * _LINE_BYTES, len(block))
        yield Piece(block=block[start:stop], age_bytes=age_bytes, age_s=age_s)
        start = stop


def _whole(storage: GuardedTensor, parts: Sequence[_Part]) -> Piece:
    """A block with gaps, of the age of the middle of what is touched."""
    done, middle = 0.0, parts[0]
    for part in sorted(parts, reverse=True):
        middle = part if done < 0.5 else middle
        done += part[2]
    return Piece(block=storage.block, age_bytes=middle[0], age_s=middle[1], sparse=storage.view)


def moved(pieces: Sequence[Piece], foreign_bytes: int) -> Iterator[Piece | int]:
    """What goes through the caches between two calls, in order: pieces, and numbers of bytes of
    other data, at most `foreign_bytes` in all."""
    left = foreign_bytes
    for piece in pieces:
        if piece.age_bytes < left:
            yield left - piece.age_bytes
            left = piece.age_bytes
        yield piece
        left = max(0, left - piece.touched.nbytes)
    if left:
        yield left
