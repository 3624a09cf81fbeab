"""A program as one Python function: its loops are Python's, its elements numpy's scalars.

In: a program, the memory of its params. Out: a function without arguments that runs it, whose
memory holds the output then. Where threads take turns, who they are is told to a `Grid`; what is
shared between them tells its `Watch` who uses it; what several of them do together is a call of
`tests.interpreter.collective`.

    for x in 4 thread.x:              for v1 in range(4):
      o0[x + 1] = add(i0[x], i0[x])       before = grid.begin('thread.x', v1)
                                          ...
                                          x2 = d0[v1]          # inside i0, or a VerifyError
                                          x3 = (x2 + x2)
                                          d1[v1 + 1,] = x3
                                          grid.end('thread.x', before)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from autotune.errors import VerifyError
from autotune.program.async_pipeline import parts_of
from autotune.program.functions import combiner
from autotune.program.ir import (
    BLOCK_KINDS,
    THREAD_KINDS,
    Alloc,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Buffer,
    Fetch,
    For,
    If,
    Load,
    Mma,
    Program,
    Shuffle,
    Stmt,
    Store,
    Value,
    WarpgroupMma,
)
from autotune.types import Array
from tests.interpreter import collective
from tests.interpreter.collective import Copies
from tests.interpreter.expressions import Expressions
from tests.interpreter.memory import Memory, Private, new_memory
from tests.interpreter.races import Grid, Watch

MOST_NESTED = 16
"""Loops in one function: Python has a limit."""
OPERATORS = {"sum": "+", "prod": "*"}
"""Combiners that Python has for numpy's scalars."""


def translated(program: Program, memory: Mapping[str, Memory]) -> Callable[[], None]:
    """A program as a function. VerifyError where it uses a buffer that does not exist."""
    writer = _Statements()
    for buffer in program.params:
        writer.define(buffer, memory[buffer.name])
    writer.body(program.body)
    text = "\n".join(["def run():", *writer.lines, "    return"])
    namespace = writer.namespace
    exec(compile(text, f"<{program.name}>", "exec"), namespace)
    run: Callable[[], None] = namespace["run"]
    return run


class _Allocations:
    """New buffers as the program comes to them."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._watches: dict[str, tuple[int, Watch | None]] = {}
        """Shared memory is the same in all iterations of a loop: (block, who uses it) by name."""

    def memory(self, buffer: Buffer) -> Memory:
        """Memory that all threads see, or the only one there is."""
        new = new_memory(buffer, zero_halo=False)
        if buffer.scope != "shared":
            return new
        block, watch = self._watches.get(buffer.name, (-1, None))
        if block != self._grid.block_id:
            watch = new.watch
            self._watches[buffer.name] = (self._grid.block_id, watch)
        return replace(new, watch=watch)


class _Statements(Expressions):
    """Statements as lines."""

    def __init__(self) -> None:
        super().__init__()
        self._loops = 0
        grid, copies = Grid(), Copies()
        self.namespace |= {
            "grid": grid, "copies": copies, "new": _Allocations(grid), "Private": Private,
            "written_outside": _written_outside, "other_dtype": _other_dtype,
            "products": collective.products, "group_products": collective.group_products,
            "copy": collective.copy, "fetch": collective.fetch, "order_of": collective.order_of,
        }  # fmt: skip

    def define(self, param: Buffer, memory: Memory) -> None:
        number = self.place(param, memory, private=False)
        self.namespace |= {f"m{number}": memory, f"d{number}": memory.data}
        self.namespace[f"w{number}"] = memory.watch

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Store():
                self._store(stmt)
            case For():
                self._for(stmt)
            case Alloc():
                self._alloc(stmt)
            case If():
                self.line(f"if {self.bounds(stmt.bounds)}:")
                with self.nested():
                    self.body(stmt.body)
            case _:
                self._together(stmt)

    def _together(self, stmt: Stmt) -> None:
        """What threads do together, or for each other."""
        match stmt:
            case Barrier():
                self.line("grid.barrier()")
            case Mma():
                dtype = self.declared(stmt.a.buffer)
                options = f"grid=grid, dtype={dtype!r}, across={stmt.across}"
                self._call("products", (stmt.total, stmt.a, stmt.b), options)
            case WarpgroupMma():
                options = f"dtype={self.declared(stmt.a.buffer)!r}, count={stmt.count}"
                self._call("group_products", (stmt.total, stmt.a, stmt.b), options)
            case AsyncCopy():
                options = f"count={stmt.count}, grid=grid, copies=copies"
                self._call("copy", (stmt.to, stmt.source), options)
            case AsyncCommit():
                self.line("copies.commit()")
            case AsyncWait():
                self.line(f"copies.wait({stmt.pending})")
            case Fetch():
                self._call("fetch", (stmt.to, stmt.source), f"box={stmt.box}")
            case Shuffle():
                self._shuffle(stmt)

    def _call(self, name: str, loads: tuple[Load, ...], options: str) -> None:
        """A function of `tests.interpreter.collective`, of elements."""
        elements = []
        for load in loads:
            point = self.tuple(self.point(load.indices))
            elements.append(f"({self.memory(load.buffer)}, {point})")
        self.line(f"{name}({', '.join(elements)}, {options})")

    def _shuffle(self, stmt: Shuffle) -> None:
        place = self.found(stmt.place.buffer)
        if not place.private:
            raise VerifyError(f"{stmt.place.buffer} is not each thread's own")
        point = self.tuple(self.point(stmt.place.indices))
        self.line(f"m{place.number}.shuffle({stmt.combine!r}, {stmt.width}, {point})")

    # -------------------------------------------------------------------------------------- loops

    def _for(self, stmt: For) -> None:
        with self._enough_depth():
            var = self.new("v")
            if stmt.kind == "stream":
                self._stream(stmt, var)
                return
            self.line(f"for {var} in range({stmt.extent}):")
            bound = stmt.kind in (*BLOCK_KINDS, *THREAD_KINDS, "warp")
            with self.nested(var=(stmt.var, var), other_thread=bound):
                if bound:
                    self._bound_body(stmt, var)
                else:
                    self.body(stmt.body)

    def _bound_body(self, stmt: For, var: str) -> None:
        """One block, or one thread of it."""
        before, block = self.new("b"), stmt.kind in BLOCK_KINDS
        self.line(f"{before} = grid.begin({stmt.kind!r}, {var})")
        self.blocks, self.threads = self.blocks + block, self.threads + (not block)
        self.body(stmt.body)
        self.blocks, self.threads = self.blocks - block, self.threads - (not block)
        self.line(f"grid.end({stmt.kind!r}, {before})")

    def _stream(self, stmt: For, var: str) -> None:
        """Fetches as early as they may be."""
        fetches, others = parts_of(stmt)
        copies, early = self.found(fetches[0].to.buffer).interior[0], self.new("e")
        self.line(f"for {early}, {var} in order_of({stmt.extent}, {copies}):")
        with self.nested(var=(stmt.var, var)):
            for condition, part in ((early, fetches), (f"not {early}", others)):
                self.line(f"if {condition}:")
                with self.nested():
                    self.body(part)

    @contextmanager
    def _enough_depth(self) -> Iterator[None]:
        """A loop more, in a function of its own where there are many around it."""
        self._loops += 1
        if self._loops % MOST_NESTED:
            yield
        else:
            name = self.new("part")
            self.line(f"def {name}():")
            with self.nested(other_thread=True):
                yield
            self.line(f"{name}()")
        self._loops -= 1

    # ------------------------------------------------------------------------------------- memory

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        own = buffer.scope in ("register", "fragment")
        private = own and self.blocks > 0 and self.threads == 0
        with self.scoped(buffer.name):
            sample = new_memory(buffer, zero_halo=False)
            number = self.place(buffer, sample, private=private)
            made = self.constant(buffer)
            if private:
                self.line(f"m{number} = Private({made}, {{}})")
            else:
                self.line(f"m{number} = new.memory({made})")
                self.line(f"d{number} = m{number}.data")
                if not own:
                    self.line(f"w{number} = m{number}.watch")
            self.body(stmt.body)

    def _store(self, stmt: Store) -> None:
        place = self.found(stmt.buffer)
        point = self.point(stmt.indices)
        if not place.halo_writable:
            self.line(f"if not ({self.inside(point, place.interior)}):")
            self.line(f"    written_outside({stmt.buffer!r}, {self.tuple(point)})")
        at = self.located(stmt.buffer, point)
        value, data = self.value(stmt.value), self.data(stmt.buffer)
        if stmt.combine:
            value = self._combined(stmt.combine, f"{data}[{at}]", value)
        dtype = self.constant(place.dtype)
        self.line(f"if {value}.dtype != {dtype}:")
        self.line(
            f"    other_dtype({stmt.buffer!r}, {dtype}, {value}, {self.constant(stmt.value)})"
        )
        if place.watched and self.blocks:
            same = "False" if stmt.combine else f"bool({data}[{at}] == {value})"
            self.line(f"w{place.number}.write(grid, {stmt.buffer!r}, ({at}), {same})")
        self.line(f"{data}[{at}] = {value}")

    def _combined(self, name: str, left: str, right: str) -> str:
        result = self.new("x")
        if name in OPERATORS:
            self.line(f"{result} = {left} {OPERATORS[name]} {right}")
        else:
            self.line(f"{result} = {self.constant(combiner(name))}({left}, {right})")
        return result


def _written_outside(name: str, point: tuple[int, ...]) -> None:
    raise VerifyError(f"{name}{list(point)} is written outside its extents")


def _other_dtype(name: str, dtype: object, new: Array, value: Value) -> None:
    raise VerifyError(f"{name} holds {dtype}, got {new.dtype} from {value}; insert a cast")
