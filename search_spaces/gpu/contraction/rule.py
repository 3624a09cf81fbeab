"""GPUs: convolutions and matrix products by tiles in shared memory and registers.

A convolution is an implicit matrix product: rows are its output points, the reduction runs over
the window and the channels. `algorithm` says how (`search_spaces.algorithms.gpu`). A block has
`tile_m` x `tile_n` results for each of `threads_m` x `threads_n` threads, warps or groups of
warps; it takes `depth` terms of a sum at a time, `unroll` in a row, from `stages` copies. Blocks
may share a sum (`split`); `order` and `band` say which follow each other, `layout` how operands
lie in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.gpu import peak_flops_per_cycle
from autotune.program.ir import MATRIX
from autotune.schedule import Scheduled
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.gpu.base import ON_GPUS, PADDED, SWIZZLED, Blocks, GpuAlgorithm
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.shape import Contraction, contraction_of, is_contraction
from search_spaces.gpu.blocks import generation
from search_spaces.gpu.contraction.prior import lines_of, resident_blocks
from search_spaces.gpu.contraction.tiles import Product, product_of
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space

BANDS = (1, 2, 4, 8, 16)
"""Lines of blocks that advance together."""
Mask = npt.NDArray[Any]
_STARTS = 4
"""Configs from which the default is looked for."""
_UNROLLED = 2048
"""Multiply-adds of a thread's unrolled body, at most."""


class GpuContractionRule(Rule):
    """Convolutions and matrix products on GPUs, by block tiles and any algorithm that applies."""

    name = "gpu_contraction"
    priority = 10

    def matches(self, task: Task, target: Target) -> bool:
        if not target.is_gpu or not is_contraction(task):
            return False
        # Groups of a single channel have no columns that a tile's data could serve.
        node = task.nodes[task.anchor]
        return len(set(node.inputs[:2])) == 2 and not contraction_of(task).one_per_group

    def space(self, task: Task, target: Target) -> Space:
        c = contraction_of(task)
        found = ON_GPUS.applicable(task, c, target)
        depths: set[int] = set().union(*(a.depths(c) for a in found))
        layouts = {layout for a in found for layout in a.layouts}
        params = (
            Param(name="algorithm", choices=tuple(a.choice for a in found)),
            Param(name="tile_m", choices=(1, 2, 4, 8)),
            Param(name="tile_n", choices=(1, 2, 4, 8)),
            Param(name="threads_m", choices=(1, 2, 4, 8, 16, 32)),
            Param(name="threads_n", choices=(1, 2, 4, 8, 16, 32)),
            Param(name="depth", choices=tuple(sorted(depths))),
            Param(name="unroll", choices=(1, 2, 4, 8)),
            Param(name="stages", choices=(1, 2, 3, 4) if generation(target) >= 80 else (1, 2)),
            Param(name="split", choices=(1, 2, 3, 4, 6, 8, 16)),
            Param(name="order", choices=("rows_first", "columns_first")),
            Param(name="layout", choices=tuple(k for k in (PADDED, SWIZZLED) if k in layouts)),
            Param(name="band", choices=BANDS if target.kind == "cuda" else (1,)),
        )
        return Space(params, _constraints(task, c, target))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        ON_GPUS.chosen_by(config).write(builder, contraction_of(task), config, target)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target, c = machine.target, contraction_of(task)
        p, blocks, products = product_of(task, c), blocks_of(configs), _products(task, c, configs)
        names = ("tile_m", "tile_n", "depth", "unroll")
        number = {k: np.asarray(configs[k], np.float64) for k in names}
        rows, width = blocks.rows, blocks.columns
        tiles = np.ceil(products.rows / rows) * np.ceil(products.columns / width)
        count, covered = products.count * tiles, tiles * rows * width
        resident = resident_blocks(machine, blocks)
        return TileStructure(
            extents={"batch": p.count, "row": p.rows, "column": p.columns, "k": p.depth},
            reduce_axes=frozenset(("k",)),
            accesses=_accesses(p),
            tiles=(
                {"batch": np.ones(len(rows))},
                {"row": rows, "column": width},
                {"k": number["depth"]},
                {"row": number["tile_m"], "column": number["tile_n"]},
                {"k": np.ones(len(rows))},
            ),
            flops=max(1, task_flops(task)),
            accumulators=number["tile_m"] * number["tile_n"],
            vector_axis_waste=covered / (products.rows * products.columns),
            parallel_chunks=count,
            unrolled=number["tile_m"] * number["tile_n"] * number["unroll"],
            extra={
                "threads": blocks.threads,
                "tensor": ON_GPUS.of_each(configs, lambda a, _: a.fragment[0] / MATRIX[0]),
                "registers": blocks.registers,
                "split": np.asarray(configs["split"], np.float64),
                "stages": np.asarray(configs["stages"], np.float64),
                "shared": blocks.shared_bytes,
                "resident": resident,
                "waves": count / (resident * target.multiprocessors),
                "swizzled": (configs["layout"] == SWIZZLED).astype(np.float64),
                "winograd": ON_GPUS.of_each(configs, lambda a, _: a.side),
                "columns_first": (configs["order"] == "columns_first").astype(np.float64),
                "band": np.asarray(configs["band"], np.float64),
            },
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        c = contraction_of(task)
        return Prior(
            cycles=ON_GPUS.of_each(configs, lambda a, own: a.cycles(task, c, machine, own)),
            peak_cycles=max(1, task_flops(task)) / peak_flops_per_cycle(machine),
        )

    def descents(self, task: Task, best: Config) -> int:
        return _STARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """The matrix products that configs compute, which algorithms have different ones of."""

    count: Column
    rows: Column
    columns: Column
    depth: Column


def _products(task: Task, c: Contraction, configs: Configs) -> _Products:
    return _Products(
        count=ON_GPUS.of_each(configs, lambda a, _: a.products(task, c).count),
        rows=ON_GPUS.of_each(configs, lambda a, _: a.products(task, c).rows),
        columns=ON_GPUS.of_each(configs, lambda a, _: a.products(task, c).columns),
        depth=ON_GPUS.of_each(configs, lambda a, _: a.products(task, c).depth),
    )


def blocks_of(configs: Configs) -> Blocks:
    """Blocks of the configs, each as its algorithm has them."""
    return Blocks(
        rows=ON_GPUS.of_each(configs, lambda a, own: a.tile(own)[0]),
        columns=ON_GPUS.of_each(configs, lambda a, own: a.tile(own)[1]),
        threads=ON_GPUS.of_each(configs, lambda a, own: a.threads(own)),
        registers=ON_GPUS.of_each(configs, lambda a, own: a.registers(own)),
        shared_bytes=ON_GPUS.of_each(configs, lambda a, own: a.shared_bytes(own)),
        item_bytes=ON_GPUS.of_each(configs, lambda a, own: a.item_bytes(own)),
    )


def _accesses(p: Product) -> tuple[Access, ...]:
    batch: tuple[tuple[str, int], ...] = (("batch", 1),)
    return (
        Access(
            buffer="data", item_bytes=4, shape=(p.count, p.rows, p.depth),
            dims=(batch, (("row", 1),), (("k", 1),)),
        ),
        Access(
            buffer="weights", item_bytes=4, shape=(p.count, p.depth, p.columns),
            dims=(batch, (("k", 1),), (("column", 1),)),
        ),
        Access(
            buffer="out", item_bytes=4, shape=(p.count, p.rows, p.columns), written=True,
            dims=(batch, (("row", 1),), (("column", 1),)),
        ),
    )  # fmt: skip


def _constraints(task: Task, c: Contraction, target: Target) -> tuple[Constraint, ...]:
    def algorithm(configs: Configs) -> Mask:
        return np.asarray(ON_GPUS.of_each(configs, lambda a, own: a.valid(c, own)) > 0)

    def threads(configs: Configs) -> Mask:
        count = ON_GPUS.of_each(configs, lambda a, own: a.threads(own))
        whole = (count % target.warp == 0) & (count >= 16)
        return np.asarray(whole & (count <= min(1024, target.max_threads)))

    def shared(configs: Configs) -> Mask:
        needed = ON_GPUS.of_each(configs, lambda a, own: a.shared_bytes(own))
        return np.asarray(needed <= target.shared_bytes)

    def covered(configs: Configs) -> Mask:
        def inside(a: GpuAlgorithm, own: Configs) -> Mask:
            (rows, width), p = a.tile(own), a.products(task, c)
            return (rows <= max(16, 2 * p.rows)) & (width <= max(16, 2 * p.columns))

        return np.asarray(ON_GPUS.of_each(configs, inside) > 0)

    def stages(configs: Configs) -> Mask:
        def whole(a: GpuAlgorithm, own: Configs) -> Mask:
            steps = np.ceil(a.products(task, c).depth / own["depth"])
            few = own["stages"] <= steps / own["split"]
            return np.asarray((steps % own["split"] == 0) & few)

        return np.asarray(ON_GPUS.of_each(configs, whole) > 0)

    def registers(configs: Configs) -> Mask:
        each = ON_GPUS.of_each(configs, lambda a, own: a.registers(own))
        ok = each <= min(255, target.vector_registers + 64)
        if target.registers:
            ok &= (
                each * ON_GPUS.of_each(configs, lambda a, own: a.threads(own)) <= target.registers
            )
        return np.asarray(ok)

    def body(configs: Configs) -> Mask:
        work = configs["tile_m"] * configs["tile_n"] * configs["unroll"]
        return np.asarray((work <= _UNROLLED) & (configs["depth"] % configs["unroll"] == 0))

    def band(configs: Configs) -> Mask:
        def whole(a: GpuAlgorithm, own: Configs) -> Mask:
            lines, _ = lines_of(a.products(task, c), a.blocks(own), own)
            return np.asarray(lines % own["band"] == 0)

        return np.asarray(ON_GPUS.of_each(configs, whole) > 0)

    return (
        Constraint("algorithm", algorithm),
        Constraint("threads", threads),
        Constraint("band", band),
        Constraint("tile", covered),
        Constraint("stages", stages),
        Constraint("shared memory", shared),
        Constraint("registers", registers),
        Constraint("unrolled body", body),
    )


RULES.add(GpuContractionRule.name, GpuContractionRule())
