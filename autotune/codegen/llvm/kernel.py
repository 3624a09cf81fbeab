"""A whole program as one LLVM function. In: a Program and a Target. Out: LLVM IR text.

Threads run the function side by side. Every top-level statement is a phase whose iterations they
share (see `phase`); one that is no parallel loop is run whole by whoever claims it. Memory
around parallel loops belongs to all threads, and what is in it is phases again. The writer is a
stack of layers, one file each: element functions, indices, loads, bounds, values, stores, and here
statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.codegen.float_control import architecture
from autotune.codegen.llvm.binding import assembles
from autotune.codegen.llvm.index import Linear, Var
from autotune.codegen.llvm.lane_run import run_width
from autotune.codegen.llvm.phase import CLAIM, FINISH, ITERATIONS, phase_text
from autotune.codegen.llvm.tables import math_of
from autotune.codegen.llvm.text import FunctionText
from autotune.codegen.llvm.tile import TileWriter
from autotune.codegen.llvm.tile_plan import holds_sums
from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.analysis import interval, is_shared
from autotune.program.rewrite import stores_of
from autotune.program.signs import never_negative
from autotune.sizes import is_size, least, surely_at_most, surely_less
from autotune.target import Target
from autotune.types import ITEM_BYTES

ALIGN = 64
"""Bytes that scratch buffers begin at multiples of: a cache line, and the widest vector."""
CROWD, CROWD_OF_SIZES = 8, 1
"""Distances from one pointer on x86-64 after which another one is made: where a run knows how far
apart rows are, there are so many pointers that loop passes find nothing, in half of a build."""
WASM_FIRST_BYTES = 256 << 10
"""Bytes of a WebAssembly module's memory before the first tensor: its stack at least (chosen)."""
DENORMALS = {True: "preserve-sign", False: "ieee"}
"""LLVM's names of what becomes of denormal numbers, by whether they are flushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """LLVM IR of a kernel's function, and the scratch memory it needs (all threads together)."""

    function: str
    declarations: tuple[str, ...]
    workspace_bytes: int


def write_kernel(program: ir.Program, target: Target, symbol: str) -> KernelText:
    """Raises BuildError where the program cannot be expressed."""
    return _KernelWriter(program, target, symbol).write()


class _KernelWriter(TileWriter):
    def __init__(self, program: ir.Program, target: Target, symbol: str) -> None:
        self.program, self.target = program, target
        arguments = [f"ptr {_noalias(p)}%p{i}" for i, p in enumerate(program.params)]
        arguments += ["ptr noalias readonly %sizes"] if program.symbols else []
        arguments += ["ptr %workspace", "i64 %thread", "i64 %threads", "i64 %epoch"]
        self.symbol, self.phases = symbol, 0
        crowd = CROWD_OF_SIZES if program.symbols else CROWD
        self.crowd = crowd if target.triple.startswith("x86_64") else 0
        self.least_address = WASM_FIRST_BYTES if target.is_wasm else 0
        super().__init__(
            FunctionText(f"define void @{symbol}({', '.join(arguments)}) {_attributes(target)}")
        )
        for i, param in enumerate(program.params):
            self.buffers[param.name] = param
            self.pointers[param.name] = f"%p{i}"
        self.never_negative = never_negative(program)
        self.written = {s.buffer for s in stores_of(program.body)}
        self.features = frozenset(target.features.split(","))
        self.bfloat16 = "+avx512bf16" in self.features
        # It takes denormal numbers for zeros, whatever the control word says.
        self.rounds_bfloat16 = self.bfloat16 and target.flushes_denormals
        self.rounds_to_integers = target.triple.startswith(("x86_64", "aarch64"))
        self.math = math_of(self.features, reproducible=target.is_reproducible)
        wide = "+avx512f" in self.features or not target.triple.startswith("x86_64")
        self.masked_bytes = target.vector_bytes if wide else min(target.vector_bytes, 32)
        self.valignd = "+avx512f" in self.features and assembles(target.triple)
        self.ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        self.symbols = program.symbols
        self.workspace = 0
        self.changed: list[frozenset[str]] = []

    def write(self) -> KernelText:
        body = self.program.body
        while len(body) == 1 and isinstance(body[0], ir.Alloc):
            self._allocate(body[0].buffer, private=False)
            body = body[0].body
        for stmt in body:
            self._top(stmt)
        self.end_tiles()
        self.text.line("ret void")
        return KernelText(
            function=self.text.text(),
            declarations=tuple(self.text.declared.values()),
            workspace_bytes=self.workspace,
        )

    def _top(self, stmt: ir.Stmt) -> None:
        if self.target.threads == 1:
            with self._unless_in_place(stmt), self.text.region():
                self.stmt(stmt)
        elif isinstance(stmt, ir.For) and stmt.kind == "parallel":
            with self._phase(stmt.extent) as (first, limit):
                self._counted(stmt, first, limit)
        elif isinstance(stmt, ir.Alloc) and is_shared(stmt):
            self._allocate(stmt.buffer, private=False)
            for inner in stmt.body:
                self._top(inner)
        else:
            with self._phase(1):
                self.stmt(stmt)

    @contextmanager
    def _unless_in_place(self, stmt: ir.Stmt) -> Iterator[None]:
        """A copy that other statements change is left out where it goes to where it comes from:
        so a state is updated in place, where the caller says that it lies there."""
        pair = _copied(stmt, self.buffers) if len(self.program.body) > 1 else None
        if pair is None:
            yield
            return
        text = self.text
        one, other = (self.pointers[name] for name in pair)
        copying, done = text.label(), text.label()
        apart = text.emit(f"icmp ne ptr {one}, {other}")
        text.branch(f"i1 {apart}, label %{copying}, label %{done}")
        text.start(copying)
        yield
        text.branch(f"label %{done}")
        text.start(done)

    @contextmanager
    def _phase(self, extent: int) -> Iterator[tuple[str, str]]:
        """Code run for every piece claimed; gives the piece's first iteration and its limit."""
        text, name = self.text, f"{self.symbol}_phase{self.phases}"
        self.phases += 1
        text.declare(name, phase_text(name, self.target))
        count = text.alloca("i64")
        text.line(f"store i64 0, ptr {count}")
        claims, inside, done = text.label(), text.label(), text.label()
        text.branch(f"label %{claims}")
        text.start(claims)
        where = f"ptr @{name}, i64 %epoch"
        end = self.amount(extent)
        given = f"{where}, i64 %thread, i64 %threads, i64 {end}"
        run = text.emit(f"call {{i64, i64}} @{CLAIM}({given})")
        first = text.emit(f"extractvalue {{i64, i64}} {run}, 0")
        limit = text.emit(f"extractvalue {{i64, i64}} {run}, 1")
        some = text.emit(f"icmp ult i64 {first}, {limit}")
        text.branch(f"i1 {some}, label %{inside}, label %{done}")
        text.start(inside)
        with text.region():
            yield first, limit
        before = text.emit(f"load i64, ptr {count}")
        more = text.emit(f"sub i64 {limit}, {first}")
        if is_size(extent):  # whoever ran the last iteration makes calls of all extents alike
            rest = text.emit(f"sub i64 {ITERATIONS}, {end}")
            last = text.emit(f"icmp eq i64 {limit}, {end}")
            rest = text.emit(f"select i1 {last}, i64 {rest}, i64 0")
            more = text.emit(f"add i64 {more}, {rest}")
        text.line(f"store i64 {text.emit(f'add i64 {before}, {more}')}, ptr {count}")
        text.branch(f"label %{claims}")
        text.start(done)
        total = text.emit(f"load i64, ptr {count}")
        counted = ITERATIONS if is_size(extent) else extent
        text.line(f"call void @{FINISH}({where}, i64 {counted}, i64 {total})")

    def other(self, stmt: ir.Stmt) -> None:
        raise BuildError(f"{type(stmt).__name__} needs a GPU")

    def loop(self, loop: ir.For) -> None:
        if loop.kind == "vector":
            self._vector_loop(loop)
        elif loop.kind == "dot":
            with self.neighbours(loop):
                self.body(loop.body)
        elif loop.kind == "tile":
            self.tile_product(loop)
        elif loop.kind == "unroll" or loop.extent == 1:
            self._unrolled(loop)
        elif least(loop.extent) > 0:
            self._counted(loop, "0", self.amount(loop.extent))
        else:  # as the rest of a row behind its first element
            limit = self.amount(loop.extent)
            with self.text.when(self.text.emit(f"icmp ne i64 {limit}, 0")):
                self._counted(loop, "0", limit)

    def _unrolled(self, loop: ir.For) -> None:
        outer = self.run
        if outer is None and self.target.takes_lanes:
            width = run_width(loop, self.buffers, self.target.vector_registers)
            self.run = (loop.var, width) if width else None
        for i in range(loop.extent):
            self.env[loop.var] = i
            self.body(loop.body)
        self.run = outer

    def _counted(self, loop: ir.For, first: str, limit: str) -> None:
        with self.text.loop(first, limit) as name:
            self.env[loop.var] = Var(name, self.text.scope.depth)
            self.changed.append(frozenset(s.buffer for s in stores_of((loop,))))
            self.begin_iteration()
            self.body(loop.body)
            self.begin_iteration()
            self.changed.pop()

    def settled(self, value: ir.Load, offset: Linear) -> int | None:
        """Depth of the outermost loop in front of which a load of scratch gives the same; None for
        no loop. Nothing shares memory with scratch, and `changed` says what loops store to. Guards
        are left behind, so no index may be outside the buffer."""
        buffer = self.buffers[value.buffer]
        depths = [var.depth for var, _ in offset.terms]
        if buffer.scope != "scratch" or any(d < 0 for d in depths):
            return None
        outermost = None
        for depth in range(len(self.changed), max(depths, default=0), -1):
            if buffer.name in self.changed[depth - 1]:
                break
            outermost = depth
        inside = all(
            surely_at_most(0, low) and surely_less(high, extent)
            for extent, (low, high) in zip(
                buffer.shape, (interval(i, self.ranges) for i in value.indices), strict=True
            )
        )
        return outermost if inside else None

    def alloc(self, stmt: ir.Alloc) -> None:
        if stmt.buffer.scope == "register":
            self.buffers[stmt.buffer.name] = stmt.buffer
        else:
            self._allocate(stmt.buffer, private=True)
        if holds_sums(stmt):
            self.tiled_body(stmt.body)
        else:
            self.body(stmt.body)
        if stmt.buffer.scope == "register":
            self.text.drop(
                c for (name, _), (c, _) in self.cells.items() if name == stmt.buffer.name
            )

    def _allocate(self, buffer: ir.Buffer, private: bool) -> None:
        """A place in the workspace; a private one per thread."""
        self.buffers[buffer.name] = buffer
        if buffer.scope == "register":
            return
        item = ITEM_BYTES[buffer.dtype]
        before, after = buffer.layout.span(buffer.shape)
        head = -(-before * item // ALIGN) * ALIGN
        size = head + -(-after * item // ALIGN) * ALIGN
        copies = self.target.threads if private else 1
        start = self.workspace + head
        self.workspace += size * copies
        offset = self.amount(start)
        if copies > 1:
            scaled = self.pure(0, f"mul i64 %thread, {self.amount(size)}")
            offset = self.pure(0, f"add i64 {scaled}, {offset}")
        pointer = f"getelementptr i8, ptr %workspace, i64 {offset}"
        self.pointers[buffer.name] = self.text.hoist(0, (buffer.name, "pointer"), pointer)

    def prefetch(self, stmt: ir.Prefetch) -> None:
        buffer = self.buffers[stmt.buffer]
        pointer = self.address(buffer, self.linear(self.flat(buffer, stmt.indices)))
        self.text.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.text.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")


def _copied(stmt: ir.Stmt, buffers: Mapping[str, ir.Buffer]) -> tuple[str, str] | None:
    """(source, destination) of a nest that does nothing but copy elements of a param to where
    they are in another one."""
    pairs = set[tuple[str, str]]()
    for store in stores_of((stmt,)):
        value = store.value
        if not isinstance(value, ir.Load) or store.combine or value.indices != store.indices:
            return None
        pairs.add((value.buffer, store.buffer))
    if len(pairs) != 1:
        return None
    (pair,) = pairs
    one, other = (buffers[name] for name in pair)
    alike = one.scope == other.scope == "param" and not one.constant and one.shape == other.shape
    return pair if alike and one.strides == other.strides and one.halo == other.halo else None


def _attributes(target: Target) -> str:
    """What denormal numbers are to the kernel (see `float_control`), they are to LLVM; how wide
    scalable vectors are makes it put vectors of that width into them."""
    mode = DENORMALS[target.flushes_denormals and bool(architecture(target))]
    wide = f"vscale_range({n},{n}) " if (n := target.sve_granules) else ""
    return f'nounwind {wide}"denormal-fp-math"="{mode},{mode}"'


def _noalias(param: ir.Buffer) -> str:
    # Only weights: an activation may share memory with the output (in-place calls).
    return "noalias readonly " if param.constant else ""
