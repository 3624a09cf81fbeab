"""Check a program's invariants. In: a program. Out: nothing, or a VerifyError naming the offender.

Loop and buffer names are unique; buffers exist where they are used and are indexed by as many
indices as they have dimensions; extents are positive; every access stays inside the buffer and its
halo (stores to params: inside the buffer), by interval analysis under the guards around it. What
is bound to blocks and threads makes kernels, see `autotune.program.launch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from autotune.errors import VerifyError
from autotune.program.async_pipeline import check_fetch
from autotune.program.ir import (
    BLOCK_KINDS,
    COMBINERS,
    MATRIX,
    MATRIX_BYTES,
    MATRIX_SUMS,
    THREAD_KINDS,
    Alloc,
    Apply,
    AsyncCopy,
    Bound,
    Buffer,
    Fetch,
    For,
    If,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    LoopKind,
    Mma,
    Pack,
    Prefetch,
    Program,
    Scope,
    Select,
    Shuffle,
    Stmt,
    Store,
    Table,
    Value,
    WarpgroupMma,
    matching,
    walk,
)
from autotune.program.launch import launches
from autotune.program.packing import packed_shape
from autotune.program.text import print_stmt
from autotune.types import ITEM_BYTES, SHORT_FLOATS
from tests.interpreter.intervals import guarded_interval

KINDS = get_args(LoopKind)
SCOPES = get_args(Scope)[1:]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known at a statement."""

    buffers: Mapping[str, Buffer]
    loops: Mapping[str, int]
    guards: tuple[Bound, ...]
    stmt: Stmt | None = None

    def fail(self, message: str) -> VerifyError:
        where = print_stmt(self.stmt).split("\n")[0] if self.stmt is not None else "params"
        return VerifyError(f"{message}, in: {where}")


def verify(program: Program) -> None:
    """Raise VerifyError where the program breaks an invariant."""
    packs = {p.buffer: p for p in program.packs}
    buffers: dict[str, Buffer] = {}
    scope = _Scope(buffers, {}, ())
    for buffer in program.params:
        if buffer.name in buffers:
            raise scope.fail(f"param {buffer.name} is declared twice")
        if buffer.scope != "param":
            raise scope.fail(f"param {buffer.name} has scope {buffer.scope}")
        buffers[buffer.name] = _packed(buffer, packs.get(buffer.name), scope)
    unknown = sorted(packs.keys() - buffers.keys())
    if unknown:
        raise scope.fail(f"packs of buffers that are no params: {', '.join(unknown)}")
    if sum(b.written for b in program.params) != 1:
        raise scope.fail("exactly one param must be written")
    seen = set(buffers)
    _body(program.body, scope, seen)
    if is_gpu(program):
        launches(program)


def is_gpu(program: Program) -> bool:
    """Whether anything in the program is bound to blocks or threads."""
    kinds = (*BLOCK_KINDS, *THREAD_KINDS)
    return any(isinstance(s, For) and s.kind in kinds for s in walk(program.body))


def _packed(buffer: Buffer, pack: Pack | None, scope: _Scope) -> Buffer:
    if pack is None:
        return buffer
    if not buffer.constant:
        raise scope.fail(f"{buffer.name} is packed but is not constant")
    return Buffer.dense(buffer.name, buffer.dtype, packed_shape(pack), "param")


def _body(body: tuple[Stmt, ...], scope: _Scope, seen: set[str]) -> None:
    for stmt in body:
        _stmt(stmt, replace(scope, stmt=stmt), seen)


def _stmt(stmt: Stmt, scope: _Scope, seen: set[str]) -> None:
    if isinstance(stmt, For):
        if stmt.kind not in KINDS or stmt.extent < 1:
            raise scope.fail(f"a loop needs a kind of {', '.join(KINDS)} and a positive extent")
        _declare(stmt.var, scope, seen)
        _body(stmt.body, replace(scope, loops={**scope.loops, stmt.var: stmt.extent}), seen)
    elif isinstance(stmt, Alloc):
        buffer = stmt.buffer
        if buffer.scope not in SCOPES or min(buffer.shape, default=1) < 1:
            raise scope.fail(f"an alloc needs a scope of {', '.join(SCOPES)} and positive extents")
        if not len(buffer.shape) == len(buffer.strides) == len(buffer.halo):
            raise scope.fail(f"{buffer.name} needs a stride and a halo per dimension")
        if buffer.swizzle:
            _swizzle(buffer, scope)
        _declare(buffer.name, scope, seen)
        _body(stmt.body, replace(scope, buffers={**scope.buffers, buffer.name: buffer}), seen)
    elif isinstance(stmt, If):
        _bounds(stmt.bounds, scope)
        _body(stmt.body, replace(scope, guards=scope.guards + stmt.bounds), seen)
    elif isinstance(stmt, Store):
        if stmt.combine is not None and stmt.combine not in COMBINERS:
            raise scope.fail(f"unknown combiner {stmt.combine}")
        _value(stmt.value, scope)
        _access(stmt.buffer, stmt.indices, scope, store=True)
    elif isinstance(stmt, Prefetch):
        _arity(stmt.buffer, stmt.indices, scope)
    elif isinstance(stmt, AsyncCopy):
        _copy(stmt, scope)
    elif isinstance(stmt, Mma):
        _mma(stmt, scope)
    elif isinstance(stmt, Shuffle):
        _shuffle(stmt, scope)
    elif isinstance(stmt, WarpgroupMma):
        for one in _matrices_of(stmt):
            _mma(one, scope)
    elif isinstance(stmt, Fetch):
        _fetch(stmt, scope)


def _fetch(stmt: Fetch, scope: _Scope) -> None:
    to, source = (_arity(p.buffer, p.indices, scope) for p in (stmt.to, stmt.source))
    wrong = check_fetch(stmt, to, source)
    if wrong:
        raise scope.fail(wrong)
    slot, row, column = stmt.to.indices
    last = row + math.prod(stmt.box[:-1]) - 1
    for indices in ((slot, row, column), (slot, last, column)):
        _access(stmt.to.buffer, indices, scope, store=True)


def _swizzle(buffer: Buffer, scope: _Scope) -> None:
    whole = (
        len(buffer.swizzle) == 3 and min(buffer.swizzle) >= 0 and not any(map(sum, buffer.halo))
    )
    if buffer.scope != "shared" or not whole or buffer.swizzle[2] < buffer.swizzle[0]:
        raise scope.fail(
            f"{buffer.name}: shared memory without a halo is swizzled, by bits further up than as "
            f"many as are changed, not by {buffer.swizzle}"
        )


def _shuffle(stmt: Shuffle, scope: _Scope) -> None:
    _access(stmt.place.buffer, stmt.place.indices, scope, store=True)
    if scope.buffers[stmt.place.buffer].scope != "register":
        raise scope.fail("a shuffle combines elements of registers")
    if stmt.combine not in COMBINERS or stmt.width < 1 or stmt.width & (stmt.width - 1):
        raise scope.fail("a shuffle has a combiner and a power of two of threads")


def _copy(stmt: AsyncCopy, scope: _Scope) -> None:
    last = stmt.count - 1
    for place, store in ((stmt.to, True), (stmt.source, False)):
        buffer = _arity(place.buffer, place.indices, scope)
        for indices in (place.indices, (*place.indices[:-1], place.indices[-1] + last)):
            _access(place.buffer, indices, scope, store=store)
        if buffer.strides[-1] != 1 or (store and buffer.scope != "shared"):
            raise scope.fail("a copy goes from elements side by side to shared memory")
    to = scope.buffers[stmt.to.buffer]
    if to.swizzle and stmt.count > 1:
        flat = sum((i * s for i, s in zip(stmt.to.indices, to.strides, strict=True)), Index())
        steps = (flat.const, *(c for _, c in flat.terms))
        if stmt.count > 1 << to.swizzle[1] or any(n % stmt.count for n in steps):
            raise scope.fail(f"the elements copied to swizzled {to.name} do not stay together")
    if scope.buffers[stmt.to.buffer].dtype != scope.buffers[stmt.source.buffer].dtype:
        raise scope.fail("a copy does not change the type of elements")


def _mma(stmt: Mma, scope: _Scope) -> None:
    total, a, b = (_arity(p.buffer, p.indices, scope) for p in (stmt.total, stmt.a, stmt.b))
    if matching(a.dtype) != b.dtype or MATRIX_SUMS.get(a.dtype) != total.dtype:
        raise scope.fail(f"no tensor core adds {a.dtype} times {b.dtype} to {total.dtype}")
    if (total.scope, a.scope, b.scope) != ("fragment", "shared", "shared"):
        raise scope.fail("mma takes a fragment and two operands in shared memory")
    rows, columns = MATRIX
    depth = MATRIX_BYTES // ITEM_BYTES[a.dtype]
    if stmt.across and a.dtype not in SHORT_FLOATS:
        raise scope.fail(f"no operand of {a.dtype} lies across")
    second = (depth, columns) if stmt.across else (columns, depth)
    sizes = ((stmt.total, rows, columns), (stmt.a, rows, depth), (stmt.b, *second))
    for place, height, width in sizes:
        *outer, row, column = place.indices
        for indices in ((*outer, row, column), (*outer, row + height - 1, column + width - 1)):
            _access(place.buffer, indices, scope)


def _declare(name: str, scope: _Scope, seen: set[str]) -> None:
    if name in seen:
        raise scope.fail(f"name {name} is used twice")
    seen.add(name)


def _arity(name: str, indices: tuple[Index, ...], scope: _Scope) -> Buffer:
    if name not in scope.buffers:
        raise scope.fail(f"buffer {name} is not declared here")
    buffer = scope.buffers[name]
    if len(indices) != len(buffer.shape):
        raise scope.fail(f"{name} has {len(buffer.shape)} dimensions, got {len(indices)} indices")
    for i in indices:
        _index(i, scope)
    return buffer


def _access(name: str, indices: tuple[Index, ...], scope: _Scope, store: bool = False) -> None:
    buffer = _arity(name, indices, scope)
    if store and buffer.scope == "param" and not buffer.written:
        raise scope.fail(f"param {name} is read-only")
    halo_allowed = not (store and buffer.scope == "param")
    for d, (i, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        before, after = buffer.halo[d] if halo_allowed else (0, 0)
        lo, hi = guarded_interval(i, scope.loops, scope.guards)
        if lo <= hi and (lo < -before or hi >= extent + after):
            raise scope.fail(
                f"{name} dimension {d} is accessed at {lo}..{hi}, allowed is "
                f"{-before}..{extent + after - 1}"
            )


def _value(value: Value, scope: _Scope) -> None:
    if isinstance(value, Load):
        _access(value.buffer, value.indices, scope)
    elif isinstance(value, Apply):
        for arg in value.args:
            _value(arg, scope)
    elif isinstance(value, IndexValue):
        _index(value.index, scope)
    elif isinstance(value, Select):
        _bounds(value.bounds, scope)
        _value(value.then, replace(scope, guards=scope.guards + value.bounds))
        _value(value.other, replace(scope, guards=scope.guards + _complement(value.bounds, scope)))
    elif isinstance(value, Table):
        for i, extent in ((value.row, len(value.values)), (value.column, len(value.values[0]))):
            _index(i, scope)
            lo, hi = guarded_interval(i, scope.loops, scope.guards)
            if lo < 0 or hi >= extent:
                raise scope.fail(f"a table is read at {lo}..{hi}, its extent is {extent}")


def _complement(bounds: tuple[Bound, ...], scope: _Scope) -> tuple[Bound, ...]:
    """What holds where one bound does not, if that is an interval."""
    if len(bounds) != 1:
        return ()
    bound = bounds[0]
    lo, hi = guarded_interval(bound.index, scope.loops, scope.guards)
    if bound.lo <= lo:
        return (Bound(bound.index, bound.hi, hi + 1),)
    return (Bound(bound.index, lo, bound.lo),) if bound.hi > hi else ()


def _bounds(bounds: tuple[Bound, ...], scope: _Scope) -> None:
    for bound in bounds:
        _index(bound.index, scope)


def _index(value: Index, scope: _Scope) -> None:
    for atom, _ in value.terms:
        if isinstance(atom, str):
            if atom not in scope.loops:
                raise scope.fail(f"loop variable {atom} does not exist here")
        elif isinstance(atom, LoadIndex):
            _access(atom.buffer, atom.indices, scope)
        else:
            _index(atom.index, scope)


def _matrices_of(stmt: WarpgroupMma) -> Iterator[Mma]:
    """The same as products of single matrices."""
    *outer, place, m, n = stmt.total.indices
    *first, column, k = stmt.b.indices
    for c in range(stmt.count):
        total = Load(stmt.total.buffer, (*outer, place + c, m, n))
        yield Mma(total, stmt.a, Load(stmt.b.buffer, (*first, column + MATRIX[1] * c, k)))
