"""Binding of loops to a GPU's blocks and threads. In: a schedule being built. Out: it, bound.

Every limit comes from the target: threads of a block, shared memory, registers.
"""

from __future__ import annotations

from autotune.errors import ScheduleError
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Step
from autotune.schedule.gpu.bind import Bind
from autotune.schedule.loops.compute import ComputeAt, root_body
from autotune.schedule.loops.nest import Unroll
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.target import Target
from search_spaces.builder import ScheduleBuilder, own_loops


def thread_choices(target: Target, most: int = 1024) -> tuple[int, ...]:
    """Threads of a block: whole warps, powers of two."""
    least = max(32, target.warp)
    choices = [n for n in (32, 64, 128, 256, 512, 1024) if least <= n <= most]
    return tuple(n for n in choices if n <= target.max_threads) or (target.max_threads,)


AMPERE = 80
"""Generation of GPUs since when there are tensor cores of bfloat16 and tf32, and copies to shared
memory that run beside arithmetic."""


def generation(target: Target) -> int:
    """80 for sm_80 and its like; 0 where there is no such number."""
    number = "".join(c for c in target.arch if c.isdigit())
    return int(number) if number and target.kind == "cuda" else 0


def bind_flat(
    builder: ScheduleBuilder, loops: list[str], threads: int, vector: int = 1
) -> str | None:
    """Fuse loops and bind them: blocks of `threads` threads, for each of which `vector`
    neighbouring elements of the last loop (1 where that does not divide it). Gives the loop over
    those, None where there are no loops."""
    if not loops:
        return None
    name, last = loops[0], loops[-1]
    lanes = f"{name}_v"
    vector = vector if builder.extent(last) % vector == 0 else 1
    builder.split(last, vector, f"{last}_o", lanes)
    loops = [*loops[:-1], f"{last}_o"]
    flat = builder.fuse(loops, f"{name}_flat") if len(loops) > 1 else loops[0]
    threads = min(threads, builder.extent(flat))
    builder.split(flat, threads, f"{name}_b", f"{name}_t")
    builder.apply(Bind(loop=f"{name}_b", axis="block.x"))
    builder.apply(Bind(loop=f"{name}_t", axis="thread.x"))
    return lanes


def bind_rest(builder: ScheduleBuilder, target: Target, threads: int = 256) -> None:
    """Bind every top-level nest that is not bound yet, one thread an element."""
    for stmt in root_body(builder.program):
        if isinstance(stmt, For) and stmt.kind == "serial":
            lanes = bind_flat(builder, own_loops(stmt), min(threads, target.max_threads))
            if lanes is not None:
                keep_sums(builder, stmt, lanes)


def keep_sums(builder: ScheduleBuilder, nest: For, lanes: str) -> None:
    """Keep what a bound nest adds up in registers, for each of its threads' elements."""
    for store in {s.buffer: s for s in stores_of((nest,)) if s.combine}.values():
        if attempt(builder, CacheWrite(buffer=store.buffer, loops=(lanes,))):
            break
    builder.apply(Unroll(loops=builder.present([f"{lanes}{k}" for k in ("", "_init", "_out")])))


def merge_nests(builder: ScheduleBuilder) -> list[str]:
    """Compute what follows a reduction in its loops, as deep as they share them; gives
    the loops, none where nothing is reduced."""
    nests = [s for s in root_body(builder.program) if isinstance(s, For)]
    first = next((n for n in nests if any(s.combine for s in stores_of((n,)))), None)
    loops = own_loops(first) if first is not None else []
    if first is None or not loops:
        return []
    for nest in nests[nests.index(first) + 1 :]:
        attempt(builder, ComputeAt(buffer=stores_of((nest,))[-1].buffer, at=loops[-1]))
    return loops


def attempt(builder: ScheduleBuilder, step: Step) -> bool:
    """Apply a step where it is legal; says whether it was."""
    try:
        builder.apply(step)
    except ScheduleError:
        return False
    return True
