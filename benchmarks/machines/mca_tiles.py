"""Inner loops of products of matrix tiles (AMX), by what Intel says of the instructions.

In: a kernel's task and code. Out: its products of tiles a cycle over the one in 16 cycles that a
core does, and what else its inner loop needs. llvm-mca (22.1) has no figures of these
instructions: it gives each of them 100 cycles, several a cycle, so that its cycles say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.schedule.memory.tile_dot import TILE_ROWS
from autotune.tasks.flops import node_flops
from autotune.types import Task
from benchmarks.machines.mca_code import CodeBlock
from search_spaces.algorithms.amx import LATENCY_ROWS, LOADED_ROWS

OPERATIONS_A_CYCLE = 6
"""Micro-operations that a core with tiles begins in a cycle (Golden Cove)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileScore:
    """Cycles of inner loops: whole, by their products alone, by their loads alone."""

    work: float
    """Multiply-adds."""
    cycles: float
    products: float
    loads: float
    spills: int

    @property
    def share(self) -> float:
        """Of the products that a core does."""
        return self.products / self.cycles

    def times(self, count: int) -> TileScore:
        """Of a kernel that is called so often; its code is there once."""
        return TileScore(
            work=self.work * count, cycles=self.cycles * count, products=self.products * count,
            loads=self.loads * count, spills=self.spills,
        )  # fmt: skip

    @staticmethod
    def total(scores: Sequence[TileScore]) -> TileScore:
        work, cycles, products, loads, spills = (
            sum(getattr(s, name) for s in scores)
            for name in ("work", "cycles", "products", "loads", "spills")
        )
        return TileScore(
            work=work, cycles=cycles, products=products, loads=loads, spills=int(spills)
        )

    def __str__(self) -> str:
        """Products in 16 cycles: as the loop is, alone, and what its loads would allow."""
        return (
            f"{self.share:.2f} | 1.00 | {self.products / max(self.loads, 1):.2f} "
            f"| {100 * self.share:.0f} % | {self.spills}"
        )


def tile_score(task: Task, code: Sequence[CodeBlock]) -> TileScore:
    """That of the loop with most products, as if it did all of the kernel's."""
    loop = max(code, key=lambda block: block.tile_products)
    products, loads = loop.tile_products * TILE_ROWS, loop.tile_loads * TILE_ROWS / LOADED_ROWS
    waits = loop.tile_products / loop.tile_sums * LATENCY_ROWS
    cycles = max(products, loads, waits, len(loop.lines) / OPERATIONS_A_CYCLE)
    work = node_flops(task, task.nodes[task.anchor]) / 2
    each = work / products
    return TileScore(
        work=work, cycles=each * cycles, products=work, loads=each * loads, spills=loop.spills
    )
