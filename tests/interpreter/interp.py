"""Run a program element by element: the slow oracle of what schedule steps may not change.

In: a program and dense arrays by param name (constants unpacked). Out: the output array. Parallel,
vector and unrolled loops run serially, and so do blocks and threads: a nest of thread loops runs
for all threads before the next one starts; what only that order makes right, for lack of a barrier
or between blocks, is found by `tests.interpreter.races`. Memory that a program must not rely on
(new buffers, the output) starts as nan or an odd integer. Any access outside a buffer and its
halo, and a store of another dtype than the buffer's, is a VerifyError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.errors import VerifyError
from autotune.program.async_pipeline import depth_of, parts_of
from autotune.program.functions import combiner, function
from autotune.program.ir import (
    BLOCK_KINDS,
    MATRIX,
    MATRIX_BYTES,
    THREAD_KINDS,
    Alloc,
    Apply,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Atom,
    Barrier,
    Bound,
    Buffer,
    Clamp,
    Const,
    Fetch,
    FloorDiv,
    For,
    If,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    Mma,
    Program,
    Select,
    Shuffle,
    Stmt,
    Store,
    Value,
    WarpgroupMma,
)
from autotune.program.packing import apply_pack, widen_bfloat16
from autotune.types import ITEM_BYTES, Array
from tests.interpreter.collective import Copies, add_product, fetched
from tests.interpreter.memory import GARBAGE, Memory, Private, given, interior_of, new_memory
from tests.interpreter.races import Grid, Watch

Env = dict[str, int]


def run(program: Program, arrays: Mapping[str, Array]) -> Array:
    """The output of a program. `arrays` holds every param that is not written."""
    packs = {p.buffer: p for p in program.packs}
    memory: dict[str, Memory] = {}
    for buffer in program.params:
        if buffer.written:
            memory[buffer.name] = new_memory(buffer, zero_halo=True)
        elif buffer.name in packs:
            packed = apply_pack(packs[buffer.name], np.asarray(arrays[buffer.name]))
            if packs[buffer.name].dtype == "bfloat16":
                packed = widen_bfloat16(packed)
            elif packs[buffer.name].dtype == "float16":
                packed = packed.view(np.float16)
            memory[buffer.name] = given(buffer.name, packed, ((0, 0),) * packed.ndim)
        else:
            array = np.asarray(arrays[buffer.name]).reshape(buffer.shape)
            if buffer.dtype == "float16":
                array = array.astype(np.float16)
            memory[buffer.name] = given(buffer.name, array, buffer.halo)
    with np.errstate(all="ignore"):
        machine = _Machine(memory)
        for action in machine.body(program.body):
            action({})
    written = next(b for b in program.params if b.written)
    return interior_of(memory[written.name])


class _Machine:
    """Turns statements, values and indices into closures over the values of loop variables."""

    def __init__(self, memory: dict[str, Memory]) -> None:
        self._memory: dict[str, Memory | Private] = {**memory}
        self._dtypes: dict[str, str] = {}
        self._copies = Copies()
        self._grid = Grid()
        self._watches: dict[str, tuple[int, Watch]] = {}
        """Shared memory is the same in all iterations of a loop: (block, who uses it) by name."""

    def body(self, body: tuple[Stmt, ...]) -> list[Callable[[Env], None]]:
        return [self._stmt(s) for s in body]

    def _stmt(self, stmt: Stmt) -> Callable[[Env], None]:
        if isinstance(stmt, Store):
            return self._store(stmt)
        if isinstance(stmt, For | Alloc | If):
            if isinstance(stmt, For) and stmt.kind == "stream":
                return self._stream(stmt)
            actions = self.body(stmt.body)
            if isinstance(stmt, For):
                return self._loop(stmt, actions)
            return (
                self._alloc(stmt, actions) if isinstance(stmt, Alloc) else self._if(stmt, actions)
            )
        if isinstance(stmt, Barrier):
            return lambda _: self._grid.barrier()
        if isinstance(stmt, Mma):
            return self._mma(stmt)
        if isinstance(stmt, AsyncCopy):
            return self._copy(stmt)
        if isinstance(stmt, Shuffle):
            return self._shuffle(stmt)
        if isinstance(stmt, WarpgroupMma):
            return self._group_mma(stmt)
        if isinstance(stmt, Fetch):
            return self._fetch(stmt)
        if isinstance(stmt, AsyncCommit):
            return lambda _: self._copies.commit()
        if isinstance(stmt, AsyncWait):
            return lambda _: self._copies.wait(stmt.pending)
        return lambda _: None

    def _mma(self, stmt: Mma) -> Callable[[Env], None]:
        total, a, b = (([self._index(i) for i in p.indices]) for p in (stmt.total, stmt.a, stmt.b))

        def step(env: Env) -> None:
            dtype = self._dtypes[stmt.a.buffer]
            rows, columns, depth = *MATRIX, MATRIX_BYTES // ITEM_BYTES[dtype]
            left = self._matrix(stmt.a.buffer, [i(env) for i in a], rows, depth)
            sizes = (depth, columns) if stmt.across else (columns, depth)
            right = self._matrix(stmt.b.buffer, [i(env) for i in b], *sizes)
            right = right.T if stmt.across else right
            place = _window([i(env) for i in total], rows, columns)
            add_product(self._lookup(stmt.total.buffer).data[place], left, right, dtype)

        return step

    def _shuffle(self, stmt: Shuffle) -> Callable[[Env], None]:
        at = [self._index(i) for i in stmt.place.indices]

        def shuffle(env: Env) -> None:
            own = self._memory[stmt.place.buffer]
            if not isinstance(own, Private):
                raise VerifyError(f"{stmt.place.buffer} is not each thread's own")
            own.shuffle(stmt.combine, stmt.width, tuple(i(env) for i in at))

        return shuffle

    def _matrix(self, name: str, first: list[int], rows: int, columns: int) -> Array:
        """Elements of shared memory, read by the warp that runs."""
        memory, (*outer, m, n) = self._lookup(name), first
        out = np.empty((rows, columns), memory.data.dtype)
        for row in range(rows):
            for column in range(columns):
                at = memory.locate((*outer, m + row, n + column))
                if memory.watch is not None:
                    memory.watch.read(self._grid, name, at)
                out[row, column] = memory.data[at]
        return out

    def _copy(self, stmt: AsyncCopy) -> Callable[[Env], None]:
        to, source = ([self._index(i) for i in p.indices] for p in (stmt.to, stmt.source))

        def copy(env: Env) -> None:
            into, given = self._lookup(stmt.to.buffer), self._lookup(stmt.source.buffer)
            *first, last = (i(env) for i in to)
            *start, end = (i(env) for i in source)
            for n in range(stmt.count):
                at, place = into.locate((*first, last + n)), given.locate((*start, end + n))
                if into.watch is not None:
                    into.watch.write(self._grid, stmt.to.buffer, at, False)
                into.data[at] = np.nan if into.data.dtype.kind == "f" else GARBAGE
                self._copies.start(into.data, at, given.data, place)

        return copy

    def _group_mma(self, stmt: WarpgroupMma) -> Callable[[Env], None]:
        """What a warp has of the product of four."""
        total, a, b = (([self._index(i) for i in p.indices]) for p in (stmt.total, stmt.a, stmt.b))

        def step(env: Env) -> None:
            dtype, (rows, columns) = self._dtypes[stmt.a.buffer], MATRIX
            left, right = (
                self._lookup(p.buffer).data[_window([i(env) for i in at], size, depth_of(dtype))]
                for p, at, size in ((stmt.a, a, rows), (stmt.b, b, columns * stmt.count))
            )
            *outer, place, m, n = (i(env) for i in total)
            sums = self._lookup(stmt.total.buffer).data[(*outer,)]
            for c in range(stmt.count):
                part = right[columns * c : columns * (c + 1)]
                add_product(sums[_window([place + c, m, n], rows, columns)], left, part, dtype)

        return step

    def _fetch(self, stmt: Fetch) -> Callable[[Env], None]:
        to, source = ([self._index(i) for i in p.indices] for p in (stmt.to, stmt.source))

        def fetch(env: Env) -> None:
            into, taken = self._lookup(stmt.to.buffer), self._lookup(stmt.source.buffer)
            slot, row, _ = (i(env) for i in to)
            box = fetched(interior_of(taken), [i(env) for i in source], stmt.box)
            into.data[slot, row : row + len(box)] = box

        return fetch

    def _stream(self, stmt: For) -> Callable[[Env], None]:
        fetches, others = parts_of(stmt)
        ahead, rest = self.body(fetches), self.body(others)

        def loop(env: Env) -> None:
            copies = self._lookup(fetches[0].to.buffer).interior[0]
            for early, i in _order_of(stmt.extent, copies):
                env[stmt.var] = i
                for action in ahead if early else rest:
                    action(env)
            env.pop(stmt.var, None)

        return loop

    def _loop(self, stmt: For, actions: list[Callable[[Env], None]]) -> Callable[[Env], None]:
        if stmt.kind in (*BLOCK_KINDS, *THREAD_KINDS, "warp"):
            return self._bound_loop(stmt, actions)

        def loop(env: Env) -> None:
            for i in range(stmt.extent):
                env[stmt.var] = i
                for action in actions:
                    action(env)
            env.pop(stmt.var, None)

        return loop

    def _bound_loop(
        self, stmt: For, actions: list[Callable[[Env], None]]
    ) -> Callable[[Env], None]:
        def loop(env: Env) -> None:
            for i in range(stmt.extent):
                env[stmt.var] = i
                with self._grid.at(stmt.kind, i):
                    for action in actions:
                        action(env)
            env.pop(stmt.var, None)

        return loop

    def _alloc(self, stmt: Alloc, actions: list[Callable[[Env], None]]) -> Callable[[Env], None]:
        def alloc(env: Env) -> None:
            self._memory[stmt.buffer.name] = self._new(stmt.buffer)
            self._dtypes[stmt.buffer.name] = stmt.buffer.dtype
            for action in actions:
                action(env)
            del self._memory[stmt.buffer.name]

        return alloc

    def _new(self, buffer: Buffer) -> Memory | Private:
        if buffer.scope in ("register", "fragment") and self._grid.between_threads:
            return Private(buffer, {})
        memory = new_memory(buffer, zero_halo=False)
        if buffer.scope != "shared":
            return memory
        block, watch = self._watches.get(buffer.name, (-1, memory.watch))
        if block == self._grid.block_id:
            return replace(memory, watch=watch)
        assert memory.watch is not None
        self._watches[buffer.name] = (self._grid.block_id, memory.watch)
        return memory

    def _if(self, stmt: If, actions: list[Callable[[Env], None]]) -> Callable[[Env], None]:
        holds = self._bounds(stmt.bounds)

        def guard(env: Env) -> None:
            if holds(env):
                for action in actions:
                    action(env)

        return guard

    def _store(self, stmt: Store) -> Callable[[Env], None]:
        value, place = self._value(stmt.value), self._point(stmt.indices)
        join = combiner(stmt.combine) if stmt.combine else None

        def store(env: Env) -> None:
            memory, point = self._lookup(stmt.buffer), place(env)
            if not memory.halo_writable and not memory.contains(point):
                raise VerifyError(f"{stmt.buffer}{list(point)} is written outside its extents")
            at, new = memory.locate(point), value(env)
            if join:
                new = np.asarray(join(memory.data[at], new))[()]
            if new.dtype != memory.data.dtype:
                raise VerifyError(
                    f"{stmt.buffer} holds {memory.data.dtype}, got {new.dtype} "
                    f"from {stmt.value}; insert a cast"
                )
            if memory.watch is not None and self._grid.blocks:
                same = not join and memory.data[at] == new
                memory.watch.write(self._grid, stmt.buffer, at, bool(same))
            memory.data[at] = new

        return store

    def _lookup(self, name: str) -> Memory:
        found = self._memory.get(name)
        if found is None:
            raise VerifyError(f"buffer {name} is used where it does not exist")
        if isinstance(found, Memory):
            return found
        return found.of(self._grid.thread)

    def _value(self, value: Value) -> Callable[[Env], Any]:
        if isinstance(value, Const):
            literal = np.asarray(value.value).astype(value.dtype)[()]
            return lambda _: literal
        if isinstance(value, Load):
            return self._load(value.buffer, value.indices)
        if isinstance(value, Apply):
            call, args = function(value.fn), [self._value(a) for a in value.args]
            return lambda env: np.asarray(call(*(a(env) for a in args)))[()]
        if isinstance(value, IndexValue):
            at, dtype = self._index(value.index), np.dtype(value.dtype)
            return lambda env: dtype.type(at(env))
        if isinstance(value, Select):
            holds = self._bounds(value.bounds)
            then, other = self._value(value.then), self._value(value.other)
            return lambda env: then(env) if holds(env) else other(env)
        table = np.asarray(value.values, np.float32)
        row, column = self._index(value.row), self._index(value.column)
        memory = given("table", table, ((0, 0), (0, 0)))
        return lambda env: table[memory.locate((row(env), column(env)))]

    def _load(self, buffer: str, indices: tuple[Index, ...]) -> Callable[[Env], Any]:
        at = self._point(indices)

        def load(env: Env) -> Any:
            memory = self._lookup(buffer)
            place = memory.locate(at(env))
            if memory.watch is not None and self._grid.blocks:
                memory.watch.read(self._grid, buffer, place)
            return memory.data[place]

        return load

    def _bounds(self, bounds: tuple[Bound, ...]) -> Callable[[Env], bool]:
        parts = [(self._index(b.index), b.lo, b.hi) for b in bounds]
        return lambda env: all(lo <= i(env) < hi for i, lo, hi in parts)

    def _index(self, value: Index) -> Callable[[Env], int]:
        point = self._point((value,))
        return lambda env: point(env)[0]

    def _point(self, indices: tuple[Index, ...]) -> Callable[[Env], tuple[int, ...]]:
        """Indices as one Python function: computing them is most of what is done."""
        reads: dict[str, Any] = {}
        items = "".join(f"{self._text(i, reads)}, " for i in indices)
        made: Callable[[Env], tuple[int, ...]] = eval(f"lambda env: ({items})", reads)
        return made

    def _text(self, value: Index, reads: dict[str, Any]) -> str:
        parts = [f"{c} * {self._atom(atom, reads)}" for atom, c in value.terms]
        return f"({' + '.join([*parts, str(value.const)])})"

    def _atom(self, atom: Atom, reads: dict[str, Any]) -> str:
        """Python's text for an atom; what it reads from memory is a function of `reads`."""
        if isinstance(atom, str):
            return f"env[{atom!r}]"
        if isinstance(atom, LoadIndex):
            name = f"read{len(reads)}"
            reads[name] = self._wrapped(atom)
            return f"{name}(env)"
        inner = self._text(atom.index, reads)
        if isinstance(atom, Clamp):
            return f"min(max({inner}, {atom.lo}), {atom.hi})"
        return f"({inner} {'//' if isinstance(atom, FloorDiv) else '%'} {atom.divisor})"

    def _wrapped(self, atom: LoadIndex) -> Callable[[Env], int]:
        read, extent = self._load(atom.buffer, atom.indices), atom.extent

        def place(env: Env) -> int:
            i = int(read(env))
            return min(max(i + extent if i < 0 else i, 0), extent - 1)

        return place


def _order_of(extent: int, copies: int) -> Iterator[tuple[bool, int]]:
    """(whether it is the fetches', iteration): fetches as early as they may be."""
    for i in range(-copies + 1, extent):
        if i + copies - 1 < extent:
            yield True, i + copies - 1
        if i >= 0:
            yield False, i


def _window(first: list[int], rows: int, columns: int) -> Any:
    """The slices of a matrix that begins there."""
    *outer, m, n = first
    return (*outer, slice(m, m + rows), slice(n, n + columns))
