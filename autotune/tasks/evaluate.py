"""The oracle used when candidates are measured: exact values of a task's output, in float64.

In: a task and the arrays of its inputs and constants. Out: the output at some points, computed
from the tensor expressions only where needed (`evaluate_points`), or the whole of it by the ops'
numpy references (`evaluate_task`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotune.errors import VerifyError
from autotune.ops import OPS
from autotune.program import ir
from autotune.program.functions import apply_function, combine_over
from autotune.tasks.build import node_computes
from autotune.types import Array, Task

CHUNK = 4_000_000
"""Most elements that one reduction is spread out to at a time."""
_MEMO_BYTES = 1 << 20
"""Bytes of intermediate values that an evaluation keeps."""

Env = Mapping[str, Array]
Pads = tuple[tuple[int, int], ...]


def evaluate_points(task: Task, arrays: Mapping[str, Array], points: Array) -> Array:
    """The output at `points` [P, rank], as float64 [P], or integers of
    the output's type; `arrays` by task value name, dense."""
    output = task.by_role("output")[0]
    rank = len(output.type.shape)
    if points.ndim != 2 or points.shape[1] != rank:
        raise ValueError(f"points must be [P, {rank}], got {list(points.shape)}")
    where = tuple(points[:, d].astype(np.int64) for d in range(rank))
    found = _Evaluator(task, arrays).at(output.name, where)
    every = np.broadcast_to(found, (len(points),))
    return every.astype(np.float64) if found.dtype.kind == "f" else every


def evaluate_task(task: Task, arrays: Mapping[str, Array]) -> Array:
    """The whole output; floating point in float64."""
    return _Evaluator(task, arrays).whole(task.by_role("output")[0].name)


class _Evaluator:
    """One evaluation: the arrays, the Computes by what they make, and what is known already."""

    def __init__(self, task: Task, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._nodes = {node.outputs[0]: node for node in task.nodes}
        found = [c for node in task.nodes for c in node_computes(task, node)]
        self._computes: dict[str, ir.Compute] = {c.output: c for c in found}
        self._known: dict[str, Array] = {}
        self._memo: dict[tuple[object, ...], Array] = {}
        self._memo_bytes = 0

    def whole(self, name: str) -> Array:
        """A whole tensor."""
        if name not in self._known:
            self._known[name] = self._make_whole(name)
        return self._known[name]

    def _make_whole(self, name: str) -> Array:
        if name in self._arrays:
            return _widened(np.asarray(self._arrays[name]))
        node = self._nodes.get(name)
        if node is not None:
            inputs = [self.whole(i) for i in node.inputs]
            return _widened(np.asarray(OPS.get(node.op).reference(inputs, dict(node.attrs))))
        compute = self._computes[name]
        grid = np.meshgrid(*(np.arange(e) for e in compute.shape), indexing="ij", sparse=True)
        return np.broadcast_to(self._compute_at(compute, tuple(grid)), compute.shape)

    def at(
        self, name: str, where: tuple[Array, ...], pads: Pads | None = None, guarded: bool = False
    ) -> Array:
        """A tensor's elements at index arrays that broadcast; outside it zeros, if `pads` say so.

        With `guarded` the caller drops what lies outside, so that any element will do there."""
        inside, mask = self._inside(name, where, pads, guarded)
        found = self._elements(name, inside)
        return found if mask is None else np.where(mask, found, found.dtype.type(0))

    def _inside(
        self, name: str, where: tuple[Array, ...], pads: Pads | None, guarded: bool
    ) -> tuple[tuple[Array, ...], Array | None]:
        """Indices limited to the tensor, and which of them needed no limit (None: all)."""
        shape = self._shape(name)
        inside: list[Array] = []
        mask: Array | None = None
        for d, (i, extent) in enumerate(zip(where, shape, strict=True)):
            if i.size == 0 or (i.min() >= 0 and i.max() < extent):
                inside.append(i)
                continue
            before, after = pads[d] if pads else (0, 0)
            if not guarded and (i.min() < -before or i.max() >= extent + after):
                raise VerifyError(
                    f"{name} dimension {d} is read at {i.min()}..{i.max()}, "
                    f"its extent is {extent} and its padding {(before, after)}"
                )
            good = (i >= 0) & (i < extent)
            mask = good if mask is None else mask & good
            inside.append(np.clip(i, 0, extent - 1))
        return tuple(inside), mask

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._computes:
            return self._computes[name].shape
        return tuple(self._arrays[name].shape)

    def _elements(self, name: str, where: tuple[Array, ...]) -> Array:
        if name in self._known:
            return np.asarray(self._known[name][where])
        if name in self._arrays:
            return _widened(np.asarray(self._arrays[name][where]))
        compute = self._computes[name]
        wanted = math.prod(np.broadcast_shapes(*(i.shape for i in where)))
        if wanted >= math.prod(compute.shape) or compute.updates is not None:
            return np.asarray(self.whole(name)[where])
        key = (name, *((i.shape, i.tobytes()) for i in where if i.size <= 4096))
        if len(key) <= len(where):
            return self._compute_at(compute, where)
        if key not in self._memo:
            found = self._compute_at(compute, where)
            if self._memo_bytes + found.nbytes > _MEMO_BYTES:
                return found
            self._memo_bytes += found.nbytes
            self._memo[key] = found
        return self._memo[key]

    def _compute_at(self, compute: ir.Compute, where: tuple[Array, ...]) -> Array:
        """A Compute at index arrays, in pieces where its reduction would be too large."""
        shape = np.broadcast_shapes(*(i.shape for i in where))
        spread = math.prod(a.extent for a in compute.reduce)
        total = math.prod(shape) * spread
        if total <= CHUNK or math.prod(shape) <= 1:
            return self._compute_piece(compute, where)
        flat = [np.broadcast_to(i, shape).reshape(-1) for i in where]
        step = max(1, CHUNK // spread)
        starts = range(0, len(flat[0]), step)
        pieces = [
            self._compute_piece(compute, tuple(i[s : s + step] for i in flat)) for s in starts
        ]
        sizes = [min(step, len(flat[0]) - s) for s in starts]
        out = [np.broadcast_to(p, (n,)) for p, n in zip(pieces, sizes, strict=True)]
        return np.concatenate(out).reshape(shape)

    def _compute_piece(self, compute: ir.Compute, where: tuple[Array, ...]) -> Array:
        inner = len(compute.reduce)
        rank = max((i.ndim for i in where), default=0)
        env: dict[str, Array] = {}
        for axis, i in zip(compute.axes, where, strict=True):
            env[axis.name] = i.reshape((1,) * (rank - i.ndim) + i.shape + (1,) * inner)
        for d, axis in enumerate(compute.reduce):
            extents = (1,) * (rank + d) + (axis.extent,) + (1,) * (inner - d - 1)
            env[axis.name] = np.arange(axis.extent).reshape(extents)
        value = self._value(compute.body, env, dict(compute.pads), False)
        if not compute.combine:
            return value
        outer = np.broadcast_shapes(*(i.shape for i in where)) if where else ()
        spread = tuple(a.extent for a in compute.reduce)
        axes = tuple(range(rank, rank + inner))
        return combine_over(compute.combine, np.broadcast_to(value, outer + spread), axes)

    def _value(self, value: ir.Value, env: Env, pads: Mapping[str, Pads], guarded: bool) -> Array:
        if isinstance(value, ir.Const):
            return _widened(np.asarray(value.value, value.dtype), value.value)
        if isinstance(value, ir.Load):
            where = tuple(self._index(i, env, guarded) for i in value.indices)
            return self.at(value.buffer, where, pads.get(value.buffer), guarded)
        if isinstance(value, ir.Apply):
            return _call(value.fn, [self._value(a, env, pads, guarded) for a in value.args])
        if isinstance(value, ir.IndexValue):
            return _widened(self._index(value.index, env, guarded).astype(value.dtype))
        if isinstance(value, ir.Select):
            mask = np.asarray(True)
            for bound in value.bounds:
                mask = mask & self._holds(bound, env)
            then = self._value(value.then, env, pads, True)
            return np.where(mask, then, self._value(value.other, env, pads, True))
        row, column = (self._index(i, env, guarded) for i in (value.row, value.column))
        return np.asarray(value.values, np.float64)[row, column]

    def _holds(self, bound: ir.Bound, env: Env) -> Array:
        i = self._index(bound.index, env, True)
        return np.asarray((i >= bound.lo) & (i < bound.hi))

    def _index(self, value: ir.Index, env: Env, guarded: bool) -> Array:
        out = np.asarray(value.const, np.int64)
        for atom, c in value.terms:
            out = out + self._atom(atom, env, guarded) * c
        return out

    def _atom(self, atom: ir.Atom, env: Env, guarded: bool) -> Array:
        if isinstance(atom, str):
            return env[atom]
        if isinstance(atom, ir.LoadIndex):
            where = tuple(self._index(i, env, guarded) for i in atom.indices)
            found = self.at(atom.buffer, where, None, guarded).astype(np.int64)
            return np.clip(np.where(found < 0, found + atom.extent, found), 0, atom.extent - 1)
        inner = self._index(atom.index, env, guarded)
        if isinstance(atom, ir.Clamp):
            return np.clip(inner, atom.lo, atom.hi)
        if isinstance(atom, ir.FloorDiv):
            return inner // atom.divisor
        assert isinstance(atom, ir.Mod)
        return inner % atom.divisor


def _call(name: str, args: list[Array]) -> Array:
    return _widened(apply_function("to_float64" if name == "to_float32" else name, args))


def _widened(array: Array, exact: float | None = None) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.asarray(array if exact is None else exact, np.float64)
