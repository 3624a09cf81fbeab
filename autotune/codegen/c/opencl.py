"""The OpenCL backend: programs to OpenCL C. In: a program. Out: text, and its launches.

Every top-level statement is a kernel (`autotune.program.launch`). Loops bound to blocks become
the group's number and loops bound to threads the work item's; shared buffers are __local arrays. A
program made for CPUs runs too: its parallel loop is the grid, one work item per group. A buffer is
handed over as a block of memory and a byte offset, so that tensors may lie anywhere in an arena.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.base import BACKENDS, DeviceCode, EntryCall, Extents, Launch, ObjectCode
from autotune.codegen.c.dialect import OPENCL
from autotune.codegen.c.index import CLinear
from autotune.codegen.c.overflow import SIGNED
from autotune.codegen.c.statement import CStatementWriter, Workspace, index_type
from autotune.codegen.expression import Val
from autotune.errors import BuildError, VerifyError
from autotune.program.ir import (
    BLOCK_KINDS,
    THREAD_KINDS,
    Alloc,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Buffer,
    For,
    Program,
    Shuffle,
    Stmt,
    walk,
)
from autotune.program.launch import KernelLaunch, launches, scratch_of, storage_size
from autotune.program.rewrite import loads_of, stores_of
from autotune.target import Target

_FP64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"
_INDEX = """static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(long i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i < extent ? (ix)i : extent - 1;
}"""
_SHUFFLE = """#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define SUBGROUPS(width, x) \\
    (get_max_sub_group_size() % (width) == 0 && (x) % get_max_sub_group_size() == 0)
#define EXCHANGED(value, far) sub_group_shuffle_xor(value, far)
#else
#define SUBGROUPS(width, x) 0
#define EXCHANGED(value, far) (value)
#endif"""


class _KernelsWriter(CStatementWriter):
    """The kernels of one program."""

    def __init__(self, program: Program, symbol: str) -> None:
        super().__init__(OPENCL, program)
        self.symbol = symbol
        self.workspace = Workspace()
        self.launches: list[Launch] = []
        self.kernels: list[str] = []
        self.block_of: Extents = (1, 1, 1)
        self.global_barrier = False
        self._in_threads = False

    def write(self) -> None:
        scratch = scratch_of(self.program)
        for buffer in scratch:
            if buffer.scope != "scratch":
                raise BuildError(f"{buffer.scope} buffer {buffer.name} is outside of every kernel")
            self.workspace.add(buffer)
        everything = {b.name: b for b in (*self.program.params, *scratch)}
        for number, (launch, grid) in enumerate(_grids(self.program)):
            self._kernel(f"{self.symbol}_{number}", launch, grid, everything)

    def _kernel(
        self, name: str, launch: KernelLaunch, grid: Extents, everything: dict[str, Buffer]
    ) -> None:
        written = {s.buffer for s in stores_of(launch.body)}
        self.block_of, self.touched = launch.block, set()
        read_again = {load.buffer for load in loads_of(launch.body)} & written
        self.global_barrier = any(name in everything for name in read_again)
        for buffer in everything.values():
            self.declare(buffer)
        self.lines = []
        for buffer in (*launch.shared, *_exchanges(launch)):
            self._shared(buffer)
        for loop in launch.blocks:
            self._number(loop, "get_group_id", BLOCK_KINDS.index(loop.kind))
        self._body(launch)
        lines, self.lines = self.lines, []
        used = [b for b in everything.values() if b.name in self.touched]
        for number, buffer in enumerate(used):
            kind = self.helpers.type(buffer.dtype)
            pointer = f"__global {'' if buffer.name in written else 'const '}{kind} *"
            self.line(f"{pointer}{self.names[buffer.name]} = ({pointer})(m{number} + a{number});")
        arguments = ", ".join(f"__global char *m{i}, const long a{i}" for i in range(len(used)))
        size = ", ".join(map(str, launch.block))
        head = f"__kernel __attribute__((reqd_work_group_size({size})))\nvoid {name}({arguments})"
        self.kernels += [head, "{", *self.lines, *lines, "}", ""]
        self.launches.append(
            Launch(
                kernel=name,
                grid=grid,
                block=launch.block,
                shared_bytes=0,
                args=tuple(b.name for b in used),
            )
        )

    def _body(self, launch: KernelLaunch) -> None:
        """What a block runs; without bound loops, one iteration of a parallel loop."""
        (first, *rest) = launch.body
        if not launch.blocks and not rest and isinstance(first, For) and first.kind == "parallel":
            self._number(first, "get_group_id", 0)
            self.body(first.body)
        else:
            self.body(launch.body)

    def _number(self, loop: For, function: str, axis: int) -> None:
        """A loop variable that is the number of a group or work item along an axis."""
        if loop.extent == 1:
            self.env[loop.var] = 0
            return
        self.env[loop.var] = name = self.identifier(loop.var)
        self.line(f"const ix {name} = (ix){function}({axis});")

    def _shared(self, buffer: Buffer) -> None:
        name, kind = self.declare(buffer), self.helpers.type(buffer.dtype)
        before, _ = buffer.layout.span(buffer.shape)
        if before:
            raise BuildError(f"shared buffer {buffer.name} has a halo")
        size = storage_size(buffer)
        self.line(f"__local {kind} {name}[{size}] __attribute__((aligned(64)));")

    def loop(self, loop: For) -> None:
        if loop.kind not in THREAD_KINDS:
            super().loop(loop)
            return
        axis = THREAD_KINDS.index(loop.kind)
        guards = [] if self._in_threads else self._idle_axes(loop)
        if loop.extent < self.block_of[axis]:
            guards.append(f"get_local_id({axis}) < {loop.extent}")
        outer, self._in_threads = self._in_threads, True
        with self.block(f"if ({' && '.join(guards)})" if guards else ""):
            self._number(loop, "get_local_id", axis)
            self.body(loop.body)
        self._in_threads = outer

    def _idle_axes(self, loop: For) -> list[str]:
        """Axes of the block over which a nest of thread loops does not go: their first item."""
        inside = (loop, *walk(loop.body))
        kinds = {s.kind for s in inside if isinstance(s, For)}
        used = [THREAD_KINDS.index(kind) for kind in kinds if kind in THREAD_KINDS]
        wide = [a for a in range(3) if self.block_of[a] > 1 and a not in used]
        return [f"get_local_id({axis}) == 0" for axis in wide]

    def alloc(self, stmt: Alloc) -> None:
        if stmt.buffer.scope == "register":
            self.registers(stmt)
        elif stmt.buffer.scope == "shared":
            self.body(stmt.body)
        elif stmt.buffer.scope == "scratch":
            self._private(stmt)
        else:
            raise BuildError(f"no {stmt.buffer.scope} memory in OpenCL; use another schedule")

    def _private(self, stmt: Alloc) -> None:
        """Scratch memory inside a kernel made for CPUs: an array of the work item."""
        buffer = stmt.buffer
        name, kind = self.declare(buffer), self.helpers.type(buffer.dtype)
        before, after = buffer.layout.span(buffer.shape)
        with self.block(""):
            self.line(f"{kind} {name}memory[{before + after}];")
            self.line(f"{kind} *{name} = {name}memory + {before};")
            self.body(stmt.body)

    def other(self, stmt: Stmt) -> None:
        if isinstance(stmt, Barrier):
            fences = "CLK_LOCAL_MEM_FENCE" + " | CLK_GLOBAL_MEM_FENCE" * self.global_barrier
            self.line(f"barrier({fences});")
        elif isinstance(stmt, AsyncCopy):
            self._copy(stmt)
        elif isinstance(stmt, Shuffle):
            self._shuffle(stmt)
        elif not isinstance(stmt, AsyncCommit | AsyncWait):
            super().other(stmt)

    def _shuffle(self, stmt: Shuffle) -> None:
        """Each round, an item's value is combined with that of the item half as far away: by the
        device's exchange where its subgroups are made of such items, else through local memory."""
        buffer = self.buffers[stmt.place.buffer]
        kind = self.helpers.type(buffer.dtype)
        cell = self.load(stmt.place).text
        own, other = Val(cell, buffer.dtype, 1), Val("other", buffer.dtype, 1)
        modular = stmt.combine in ("sum", "prod") and buffer.dtype in SIGNED
        merged = self._merge(stmt.combine, own, other, modular).text
        (x, y, z), all_of = self.block_of, self.names[f"exchange.{buffer.dtype}"]
        number = "get_local_id(0)"
        if y * z > 1:
            number += f" + {x} * (get_local_id(1) + {y} * get_local_id(2))"
        rounds = f"for (int far = {stmt.width // 2}; far > 0; far /= 2)"
        with self.block(""):
            self.line(f"const int own = {number};")
            self.line(f"if (SUBGROUPS({stmt.width}, {x}))")
            with self.block(f"    {rounds}"):
                self.line(f"{kind} other = EXCHANGED({cell}, far);")
                self.line(f"{cell} = {merged};")
            with self.block(f"else {rounds}"):
                self.line(f"{all_of}[own] = {cell};")
                self.line("barrier(CLK_LOCAL_MEM_FENCE);")
                self.line(f"{kind} other = {all_of}[own ^ far];")
                self.line("barrier(CLK_LOCAL_MEM_FENCE);")
                self.line(f"{cell} = {merged};")

    def _copy(self, stmt: AsyncCopy) -> None:
        """At once, which is one of the times at which the copy may happen: no wait is needed."""
        target, source = (self.buffers[place.buffer] for place in (stmt.to, stmt.source))
        to, at = self.flat(target, stmt.to.indices), self.flat(source, stmt.source.indices)
        if stmt.count in self.dialect.lanes:
            kind = self.helpers.type(target.dtype, stmt.count)
            self.line(
                f"{kind}_store({self.place(target, to)}, {kind}_load({self.place(source, at)}));"
            )
            return
        names = self.names[target.name], self.names[source.name]
        for i in range(stmt.count):
            places = [CLinear(x.terms, x.const + i).text for x in (to, at)]
            self.line(f"{names[0]}[{places[0]}] = {names[1]}[{places[1]}];")


def _exchanges(launch: KernelLaunch) -> list[Buffer]:
    """Local memory through which shuffles go where there are no subgroups: one element an item."""
    used = {s.place.buffer for s in walk(launch.body) if isinstance(s, Shuffle)}
    found = [s.buffer for s in walk(launch.body) if isinstance(s, Alloc) and s.buffer.name in used]
    return [
        Buffer.dense(f"exchange.{dtype}", dtype, (launch.threads,), "shared")
        for dtype in sorted({buffer.dtype for buffer in found})
    ]


def _grids(program: Program) -> list[tuple[KernelLaunch, Extents]]:
    try:
        found = launches(program)
    except VerifyError as error:
        raise BuildError(str(error)) from None
    return [(launch, _grid(launch)) for launch in found]


def _grid(launch: KernelLaunch) -> Extents:
    (first, *rest) = launch.body
    if launch.blocks or rest or not isinstance(first, For) or first.kind != "parallel":
        return launch.grid
    return first.extent, 1, 1


def write_kernels(program: Program, symbol: str) -> DeviceCode:
    """OpenCL C of a program, written again while register buffers turn out to be arrays."""
    arrays: set[str] = set()
    while True:
        writer = _KernelsWriter(program, symbol)
        writer.arrays = arrays
        writer.write()
        if not writer.conflicts - arrays:
            break
        arrays = arrays | writer.conflicts
    return DeviceCode(
        symbol=symbol,
        text=_text(writer, program).encode(),
        launches=tuple(writer.launches),
        params=tuple(p.name for p in program.params),
        scratch=tuple(writer.workspace.offsets.items()),
        workspace_bytes=writer.workspace.size,
    )


def _text(writer: _KernelsWriter, program: Program) -> str:
    index = {"i32": "int", "i64": "long"}[index_type(program)]
    types = writer.helpers.text()
    double = [_FP64] if any(line.startswith("typedef double") for line in types) else []
    shuffles = [_SHUFFLE] if any(isinstance(s, Shuffle) for s in walk(program.body)) else []
    head = [*double, f"typedef {index} ix;", *types, *shuffles, _INDEX, ""]
    return "\n".join([*head, *writer.kernels])


class OpenClBackend:
    """Code for OpenCL devices, compiled by their driver."""

    name = "opencl"

    def source(self, program: Program, target: Target, symbol: str) -> str:  # noqa: ARG002
        return write_kernels(program, symbol).text.decode()

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:  # noqa: ARG002
        return write_kernels(program, symbol).object_code()

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes:  # noqa: ARG002
        """Nothing: the runtime launches a model's kernels one by one."""
        return b""


BACKENDS.add("opencl", OpenClBackend())
