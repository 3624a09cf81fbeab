"""A program as LLVM IR for NVIDIA GPUs: one kernel per launch. In: a Program. Out: text, launches.

Loops bound to blocks and threads are special registers. A nest of thread loops smaller than the
block leaves the other threads idle. Shared buffers lie one after the other in the memory that a
launch asks for. A program made for CPUs runs too: its parallel loop is the grid.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from autotune.codegen.base import Extents, Launch
from autotune.codegen.llvm.index import Var
from autotune.codegen.llvm.text import FunctionText
from autotune.codegen.nvptx.asm import MAP_BYTES
from autotune.codegen.nvptx.async_pipeline import PipelineWriter
from autotune.errors import BuildError, VerifyError
from autotune.program import ir
from autotune.program.alignment import ALIGN_BYTES, first_alignment
from autotune.program.launch import KernelLaunch, launches, scratch_of, storage_bytes
from autotune.program.rewrite import stores_of
from autotune.target import Target
from autotune.types import ITEM_BYTES

SHARED = "shared_memory"
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Blocks along x, y and z (CUDA programming guide, compute capability 3.0 and later)."""
_WORKSPACE_ALIGN = 64
"""Bytes that a kernel's global scratch begins at multiples of."""
_SHARED_ALIGN = 128
"""Bytes that shared buffers begin at multiples of: what the copy engine asks for."""
_SWIZZLE_ALIGN = 1024
"""Eight rows that the copy engine swizzles."""
_BESIDE_SUMS = 64
"""Registers of a thread for operands and addresses."""
_MAP = f'ptr byval([{MAP_BYTES} x i8]) align 64 "nvvm.grid_constant"'
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceText:
    """LLVM IR of a program's kernels, and how they are called."""

    text: str
    launches: tuple[Launch, ...]
    scratch: tuple[tuple[str, int], ...]
    workspace_bytes: int


def write_kernels(program: ir.Program, target: Target, symbol: str) -> DeviceText:
    """Raises BuildError where the program cannot be expressed, or asks for too much."""
    try:
        found = launches(program)
    except VerifyError as error:
        raise BuildError(str(error)) from None
    scratch, size = _workspace(program)
    everything = {b.name: b for b in (*program.params, *scratch_of(program))}
    functions: list[str] = []
    declared: dict[str, str] = {}
    made: list[Launch] = []
    for number, launch in enumerate(found):
        _check(launch, target)
        writer = _LaunchWriter(launch, everything, f"{symbol}_{number}", _resident(launch, target))
        functions.append(writer.write())
        declared |= writer.text.declared
        made.append(writer.launch())
    if any(item.shared_bytes for item in made):
        align = _SWIZZLE_ALIGN if any(item.maps for item in made) else _SHARED_ALIGN
        declared[SHARED] = f"@{SHARED} = external addrspace(3) global [0 x i8], align {align}"
    return DeviceText(
        text="\n".join([*declared.values(), *functions, ""]),
        launches=tuple(made),
        scratch=scratch,
        workspace_bytes=size,
    )


def _workspace(program: ir.Program) -> tuple[tuple[tuple[str, int], ...], int]:
    """Where scratch buffers lie, and the bytes of all."""
    places: list[tuple[str, int]] = []
    size = 0
    for buffer in scratch_of(program):
        if buffer.scope != "scratch":
            raise BuildError(f"{buffer.scope} buffer {buffer.name} is outside of every kernel")
        item = ITEM_BYTES[buffer.dtype]
        before, after = (
            -(-n * item // _WORKSPACE_ALIGN) * _WORKSPACE_ALIGN
            for n in buffer.layout.span(buffer.shape)
        )
        places.append((buffer.name, size + before))
        size += before + after
    return tuple(places), size


def _check(launch: KernelLaunch, target: Target) -> None:
    if launch.threads > target.max_threads or launch.shared_bytes > target.shared_bytes:
        raise BuildError(
            f"a block of {launch.threads} threads and {launch.shared_bytes} bytes of shared "
            f"memory; {target.name} has {target.max_threads} and {target.shared_bytes}"
        )
    if launch.pipeline is not None and not target.arch.startswith("sm_90a"):
        raise BuildError(f"streams need the architecture sm_90a; {target.name} has {target.arch}")
    if any(e > limit for e, limit in zip(launch.grid, GRID_LIMITS, strict=True)):
        raise BuildError(f"a grid of {launch.grid} blocks; the limits are {GRID_LIMITS}")


def _resident(launch: KernelLaunch, target: Target) -> int:
    """Blocks that a multiprocessor is to hold where they hold matrices, else 0: as many as their
    registers allow. Left alone, ptxas would rather spill some than be one register above what lets
    another block in."""
    allocs = [s.buffer for s in ir.walk(launch.body) if isinstance(s, ir.Alloc)]
    sums = sum(math.prod(b.shape) // ir.WARP for b in allocs if b.scope == "fragment")
    if not sums or not target.registers:
        return 0
    # Registers are given to four warps at a time.
    fours = target.registers // (4 * ir.WARP * (sums + _BESIDE_SUMS))
    return max(1, 4 * fours // (-(-launch.threads // ir.WARP)))


class _LaunchWriter(PipelineWriter):
    """One launch as one function."""

    def __init__(
        self, launch: KernelLaunch, everything: dict[str, ir.Buffer], name: str, resident: int
    ) -> None:
        """`resident`: blocks that a multiprocessor should hold at a time; 0: as ptxas likes."""
        self.kernel, self.name, self.resident = launch, name, resident
        self.grid, self.inside = _grid(launch)
        super().__init__(FunctionText(""), launch.pipeline)
        self.written = {s.buffer for s in stores_of(launch.body)} | {
            s.to.buffer for s in ir.walk(launch.body) if isinstance(s, ir.AsyncCopy)
        }
        self.bfloat16 = self.rounds_bfloat16 = True
        self.ranges = {s.var: s.extent for s in (*launch.blocks, *ir.walk(launch.body))
                       if isinstance(s, ir.For)}  # fmt: skip
        self.everything = everything
        self.used: list[str] = []
        self.bound: frozenset[str] = frozenset()

    def write(self) -> str:
        """The function's text."""
        for name, buffer in self.everything.items():
            self.buffers[name], self.pointers[name] = buffer, f"%{_identifier(name)}"
        for loop in self.kernel.blocks:
            self._bind(loop, "ctaid", ir.BLOCK_KINDS.index(loop.kind))
        if not self.kernel.blocks and self.inside is not self.kernel.body:
            self._bind(self.kernel.body[0], "ctaid", 0)
        self._shared()
        if self.pipeline is not None:
            self.pipelined(self.pipeline, self.inside)
        else:
            self.body(self.inside)
        self.text.line("ret void")
        body = self.text.text()
        words = set(re.findall(r"%(p_[\w.]+)", body))
        self.used = [n for n in self.everything if _identifier(n) in words]
        given = [self._argument(self.everything[n]) for n in self.used]
        arguments = ", ".join([*given, *(f"{_MAP} %map{i}" for i in range(len(self.maps)))])
        size = ",".join(map(str, self.kernel.block))
        head = f'define ptx_kernel void @{self.name}({arguments}) "nvvm.reqntid"="{size}"'
        least = f' "nvvm.minctasm"="{self.resident}"' if self.resident else ""
        return f"{head}{least} nounwind{body}"

    def launch(self) -> Launch:
        """How the function written is called."""
        return Launch(
            kernel=self.name,
            grid=self.grid,
            block=self.kernel.block,
            shared_bytes=self.kernel.shared_bytes,
            args=(*self.used, *(name for name, _ in self.maps)),
            maps=tuple(described for _, described in self.maps),
        )

    def _argument(self, buffer: ir.Buffer) -> str:
        # Only weights: an activation may share memory with the output (in-place calls).
        readonly = "noalias readonly " if buffer.constant else ""
        return f"ptr {readonly}align {first_alignment(buffer)} %{_identifier(buffer.name)}"

    def _shared(self) -> None:
        """Places of the block's shared buffers, as `KernelLaunch.shared_bytes` counts them."""
        start = 0
        for buffer in self.kernel.shared:
            if any(before for before, _ in buffer.halo):
                raise BuildError(f"shared buffer {buffer.name} has a halo")
            place = f"getelementptr i8, ptr addrspacecast (ptr addrspace(3) @{SHARED} to ptr)"
            self.buffers[buffer.name] = buffer
            self.pointers[buffer.name] = self.text.hoist(
                0, (buffer.name, "pointer"), f"{place}, i64 {start}"
            )
            self.starts[buffer.name] = start
            start += -(-storage_bytes(buffer) // ALIGN_BYTES) * ALIGN_BYTES
        self.starts[""] = start

    # ---------------------------------------------------------------------------------- statements

    def other(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Barrier):
            self._barrier()
        elif isinstance(stmt, ir.Mma):
            self.mma(stmt)
        elif isinstance(stmt, ir.WarpgroupMma):
            self.group_mma(stmt)
        elif isinstance(stmt, ir.AsyncCopy):
            self.copy(stmt)
        elif isinstance(stmt, ir.Shuffle):
            self.shuffle(stmt, self.kernel.threads)
        elif isinstance(stmt, ir.AsyncCommit):
            self.commit()
        elif isinstance(stmt, ir.AsyncWait):
            self.wait(stmt.pending)

    def prefetch(self, stmt: ir.Prefetch) -> None:
        """Other warps run while one waits."""

    def _barrier(self) -> None:
        self.text.declare(_BARRIER, f"declare void @{_BARRIER}(i32)")
        self.text.line(f"call void @{_BARRIER}(i32 0)")
        self.stage += 1

    def alloc(self, stmt: ir.Alloc) -> None:
        if stmt.buffer.scope == "fragment":
            self.fragment(stmt.buffer)
        elif stmt.buffer.scope != "shared":
            self.registers(stmt.buffer)
        self.body(stmt.body)

    def loop(self, loop: ir.For) -> None:
        if loop.kind in ir.THREAD_KINDS:
            self._thread_loop(loop)
        elif loop.kind == "stream":
            self.consume(loop)
        elif loop.kind == "warp":
            (self._warp_loop if self.pipeline is None else self.warp_loop)(loop)
        elif loop.kind in ir.MATRIX_KINDS:
            self.body(self.matrix_loop(loop))
        elif loop.kind == "vector":
            self._vector_loop(loop)
        elif loop.kind in ("unroll", "dot") or loop.extent == 1:
            for i in range(loop.extent):
                self.env[loop.var] = i
                self.body(loop.body)
        else:
            self.stage += 1
            with self.text.loop("0", str(loop.extent)) as name:
                self.env[loop.var] = Var(name, self.text.scope.depth)
                self.body(loop.body)
            self.stage += 1

    def _thread_loop(self, loop: ir.For) -> None:
        axis = ir.THREAD_KINDS.index(loop.kind)
        guards = [] if self.bound else self._idle_axes(loop)
        if loop.extent < self.kernel.block[axis]:
            guards.append((axis, loop.extent))
        self._bind(loop, "tid", axis)
        outer, self.bound = self.bound, self.bound | {loop.kind}
        if guards:
            flags = [
                self.pure(0, f"icmp ult i64 {self._special('tid', a)}, {extent}")
                for a, extent in guards
            ]
            with self.text.when(self._and(flags, "i1")):
                self.body(loop.body)
        else:
            with self.text.region():
                self.body(loop.body)
        self.bound = outer

    def _warp_loop(self, loop: ir.For) -> None:
        warp = self.warp()
        self.env[loop.var] = warp if loop.extent > 1 else 0
        if ir.WARP * loop.extent == self.kernel.block[0]:
            with self.text.region():
                self.body(loop.body)
            return
        with self.text.when(self.pure(0, f"icmp ult i64 {warp.name}, {loop.extent}")):
            self.body(loop.body)

    def thread(self) -> str:
        return self._special("tid", 0)

    def _idle_axes(self, loop: ir.For) -> list[tuple[int, int]]:
        """Axes of the block over which a nest of thread loops does not go: their first thread."""
        kinds = {s.kind for s in (loop, *ir.walk(loop.body)) if isinstance(s, ir.For)}
        block = self.kernel.block
        return [(a, 1) for a in range(3) if block[a] > 1 and ir.THREAD_KINDS[a] not in kinds]

    def _bind(self, loop: ir.Stmt, register: str, axis: int) -> None:
        """A loop variable that is the number of a block or thread along an axis."""
        assert isinstance(loop, ir.For)
        here = 0 if loop.extent == 1 else Var(self._special(register, axis), 0)
        self.env[loop.var] = here

    def _special(self, register: str, axis: int) -> str:
        extents = self.grid if register == "ctaid" else self.kernel.block
        symbol = f"llvm.nvvm.read.ptx.sreg.{register}.{'xyz'[axis]}"
        self.text.declare(symbol, f"declare i32 @{symbol}()")
        short = self.pure(0, f"call range(i32 0, {extents[axis]}) i32 @{symbol}()")
        return self.pure(0, f"zext nneg i32 {short} to i64")


def _grid(launch: KernelLaunch) -> tuple[Extents, tuple[ir.Stmt, ...]]:
    """Blocks of a launch and what each runs; without bound loops, a parallel loop is the grid."""
    first = launch.body[0]
    alone = len(launch.body) == 1 and not launch.blocks
    if alone and isinstance(first, ir.For) and first.kind == "parallel":
        return (first.extent, 1, 1), first.body
    return launch.grid, launch.body


def _identifier(name: str) -> str:
    return f"p_{name}"
