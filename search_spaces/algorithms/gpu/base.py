"""Algorithms for convolutions and matrix products on GPUs: the base class and its parts.

Add one: a file in this folder and `ALGORITHMS.add`, under its choice's name after `gpu_`. Params
mean the same to all (`search_spaces.gpu.contraction.rule`); an algorithm says which of their
values it takes, what a block of them is and costs, and how it is written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from autotune.types import Task
from search_spaces.algorithms.base import Family, Mask, TiledAlgorithm
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.contraction.tiles import Product, product_of
from search_spaces.space import Configs

DEPTHS = (4, 8, 16, 32, 64)
"""Terms of a sum that threads copy at a time."""
MOST_COPIED = 32
"""Terms at a time of algorithms that copy float32 operands, at most."""
PADDED, SWIZZLED = "padded", "swizzled"
"""How rows of an operand come to lie in different banks of shared memory: by a gap behind each, or
chunks of them change places."""
ADDRESS_REGISTERS = 32
"""Registers of a thread for addresses and counters (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of threads, an entry per config."""

    rows: Column
    columns: Column
    """Columns of the product that a block computes."""
    threads: Column
    registers: Column
    """Registers of a thread."""
    shared_bytes: Column
    """Shared memory of a block, in bytes."""
    item_bytes: Column
    """Bytes of an operand's element in shared memory."""


class GpuAlgorithm(TiledAlgorithm):
    """A way to compute convolutions and matrix products on GPUs."""

    fragment: tuple[int, int, int] = (1, 1, 1)
    """Rows and columns of what `tile_m` and `tile_n` count, and threads of what `threads_m` and
    `threads_n` do."""
    layouts: tuple[str, ...] = (PADDED,)
    side: float = 0.0
    """Output points along a side that are filtered together, among the features of configs."""

    @abstractmethod
    def valid(self, c: Contraction, configs: Configs) -> Mask:
        """Which configs are, beside the limits that all algorithms have; params that mean nothing
        here must have their first value."""

    @abstractmethod
    def shared_bytes(self, configs: Configs) -> Column:
        """Shared memory of a block."""

    def depths(self, c: Contraction) -> Collection[int]:
        """Terms of a sum (`depth`) that a block takes at a time."""
        return DEPTHS

    def products(self, task: Task, c: Contraction) -> Product:
        """The matrix products that it computes."""
        return product_of(task, c)

    def item_bytes(self, configs: Configs) -> Column:
        """Bytes of an operand's element in shared memory."""
        return np.full(len(configs["algorithm"]), 4.0)

    def threads(self, configs: Configs) -> Column:
        """Threads of a block."""
        return np.asarray(self.fragment[2] * configs["threads_m"] * configs["threads_n"])

    def tile(self, configs: Configs) -> tuple[Column, Column]:
        """Rows and columns of a block's tile."""
        rows, width, _ = self.fragment
        return (
            np.asarray(rows * configs["tile_m"] * configs["threads_m"], np.float64),
            np.asarray(width * configs["tile_n"] * configs["threads_n"], np.float64),
        )

    def registers(self, configs: Configs) -> Column:
        """Registers of a thread: its part of the tile, a row and a column of operands,
        addresses."""
        m, n = (np.asarray(configs[p], np.float64) for p in ("tile_m", "tile_n"))
        rows, width, threads = self.fragment
        operands = 4 * m + 2 * n if threads > 1 else 2 * (m + n)
        return np.asarray(m * n * rows * width / threads + operands + ADDRESS_REGISTERS)

    def blocks(self, configs: Configs) -> Blocks:
        """Blocks of these configs."""
        rows, width = self.tile(configs)
        return Blocks(
            rows=rows, columns=width, threads=self.threads(configs),
            registers=self.registers(configs), shared_bytes=self.shared_bytes(configs),
            item_bytes=self.item_bytes(configs),
        )  # fmt: skip


ON_GPUS = Family(GpuAlgorithm)  # type: ignore[type-abstract]


def padded_shared_bytes(configs: Configs, each: Column) -> Column:
    """Shared memory of a block whose threads copy operands of so many bytes a step, `stages` steps
    of them, aligned to lines where copies run ahead."""
    each = each + np.where(configs["stages"] > 1, 128, 16)
    return np.asarray(configs["stages"] * each + 32, np.float64)
