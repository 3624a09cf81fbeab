"""GPUs: convolutions and matrix products by tiles in shared memory and registers.

A convolution is an implicit matrix product: rows are its output points, the reduction runs over
the window and the channels. See `search_spaces.gpu.contraction.tiles` for what the params mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.gpu import peak_flops_per_cycle
from autotune.program.ir import MATRIX
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.winograd import FORMS as SIDES
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.shape import contraction_of, is_contraction
from search_spaces.gpu.blocks import generation
from search_spaces.gpu.contraction.prior import (
    GROUPED,
    block_tile,
    contraction_cycles,
    groups_of,
    lines_of,
    matrix_of,
    registers_of,
    resident_blocks,
    shared_bytes_of,
    threads_of,
)
from search_spaces.gpu.contraction.tensor_cores import (
    ALLOWED,
    LAYOUTS,
    ROUNDED,
    schedule_tensor,
    step_depth,
)
from search_spaces.gpu.contraction.tiles import ITEM, Product, product_of, schedule_tiles
from search_spaces.gpu.contraction.warp_groups import fits, schedule_stream, streams, terms_of
from search_spaces.gpu.contraction.winograd import (
    FORMS,
    schedule_winograd,
    sizes_of,
    transform_cycles,
    winograd_algorithms,
)
from search_spaces.params import Config, Param
from search_spaces.space import Columns, Constraint, Space

BANDS = (1, 2, 4, 8, 16)
"""Lines of blocks that advance together."""
Mask = npt.NDArray[Any]
_STARTS = 4
"""Configs from which the default is looked for."""
_DEPTHS: tuple[int, ...] = (4, 8, 16, 32, 64)
"""Terms of a sum that threads copy at a time."""
_UNROLLED = 2048
"""Multiply-adds of a thread's unrolled body, at most."""


class GpuContractionRule(Rule):
    """See the module."""

    name = "gpu_contraction"
    priority = 10

    def matches(self, task: Task, target: Target) -> bool:
        if not target.is_gpu or not is_contraction(task):
            return False
        # Groups of a single channel have no columns that a tile's data could serve.
        node = task.nodes[task.anchor]
        return len(set(node.inputs[:2])) == 2 and not contraction_of(task).one_per_group

    def space(self, task: Task, target: Target) -> Space:
        tensor = _tensor_algorithms(task, target)
        algorithms = ("direct", *tensor, *winograd_algorithms(task, target))
        c, depths = contraction_of(task), _DEPTHS
        streamed = streams(task, c, target)
        if streamed:
            algorithms = (*algorithms, GROUPED)
            depths = tuple(sorted({*depths, terms_of(c)}))
        params = (
            Param(name="algorithm", choices=algorithms),
            Param(name="tile_m", choices=(1, 2, 4, 8)),
            Param(name="tile_n", choices=(1, 2, 4, 8)),
            Param(name="threads_m", choices=(1, 2, 4, 8, 16, 32)),
            Param(name="threads_n", choices=(1, 2, 4, 8, 16, 32)),
            Param(name="depth", choices=depths),
            Param(name="unroll", choices=(1, 2, 4, 8)),
            Param(name="stages", choices=(1, 2, 3, 4) if generation(target) >= 80 else (1, 2)),
            Param(name="split", choices=(1, 2, 3, 4, 6, 8, 16)),
            Param(name="order", choices=("rows_first", "columns_first")),
            Param(name="layout", choices=LAYOUTS if tensor or streamed else ("padded",)),
            Param(name="band", choices=BANDS if target.kind == "cuda" else (1,)),
        )
        return Space(params, _constraints(task, target))

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        builder = ScheduleBuilder(task)
        chosen = {"direct": schedule_tiles, GROUPED: schedule_stream}
        chosen |= dict.fromkeys(FORMS, schedule_winograd)
        schedule = chosen.get(str(config["algorithm"]), schedule_tensor)
        schedule(builder, contraction_of(task), config, target)
        return builder.schedule

    def structure(self, task: Task, machine: Machine, columns: Columns) -> TileStructure:
        target = machine.target
        p = product_of(task, contraction_of(task))
        names = ("tile_m", "tile_n", "depth", "unroll")
        number = {k: np.asarray(columns[k], np.float64) for k in names}
        rows, width = block_tile(columns)
        sizes = sizes_of(task, columns)
        tiles = np.ceil(sizes.rows / rows) * np.ceil(sizes.columns / width)
        blocks, covered = sizes.count * tiles, tiles * rows * width
        resident = resident_blocks(machine, columns)
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
            vector_axis_waste=covered / (sizes.rows * sizes.columns),
            parallel_chunks=blocks,
            unrolled=number["tile_m"] * number["tile_n"] * number["unroll"],
            extra={
                "threads": threads_of(columns),
                "tensor": matrix_of(columns)[0] / MATRIX[0],
                "registers": registers_of(columns),
                "split": np.asarray(columns["split"], np.float64),
                "stages": np.asarray(columns["stages"], np.float64),
                "shared": shared_bytes_of(columns),
                "resident": resident,
                "waves": blocks / (resident * target.multiprocessors),
                "swizzled": (columns["layout"] == "swizzled").astype(np.float64),
                "winograd": sum(
                    (columns["algorithm"] == name) * float(SIDES[name][0]) for name in FORMS
                ),
                "columns_first": (columns["order"] == "columns_first").astype(np.float64),
                "band": np.asarray(columns["band"], np.float64),
            },
        )

    def prior(self, task: Task, machine: Machine, columns: Columns) -> Prior:
        peak = max(1, task_flops(task)) / peak_flops_per_cycle(machine)
        return Prior(cycles=_cycles(task, machine, columns), peak_cycles=peak)

    def descents(self, task: Task, best: Config) -> int:
        return _STARTS


def _tensor_algorithms(task: Task, target: Target) -> tuple[str, ...]:
    """On tensor cores, as far as operands may be rounded."""
    if generation(target) < 80:
        return ()
    c = contraction_of(task)
    if c.item_bytes == 1:
        return ("int8",)
    short = {dtype: (name,) for name, dtype in ROUNDED.items()}
    return short.get(task.value(c.data).type.dtype, ALLOWED.get(target.precision, ()))


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


def _cycles(task: Task, machine: Machine, columns: Columns) -> Column:
    """Cycles of the device."""
    products = contraction_cycles(sizes_of(task, columns), machine, columns)
    return products + transform_cycles(task, machine, columns)


def _constraints(task: Task, target: Target) -> tuple[Constraint, ...]:
    def threads(columns: Columns) -> Mask:
        count = threads_of(columns)
        whole = (count % target.warp == 0) & (count >= 16)
        return np.asarray(whole & (count <= min(1024, target.max_threads)))

    def shared(columns: Columns) -> Mask:
        return np.asarray(shared_bytes_of(columns) <= target.shared_bytes)

    def covered(columns: Columns) -> Mask:
        (rows, width), p = block_tile(columns), sizes_of(task, columns)
        inside = rows <= np.maximum(16, 2 * p.rows)
        return np.asarray(inside & (width <= np.maximum(16, 2 * p.columns)))

    def stages(columns: Columns) -> Mask:
        steps = np.ceil(sizes_of(task, columns).depth / columns["depth"])
        whole = steps % columns["split"] == 0
        return np.asarray(whole & (columns["stages"] <= steps / columns["split"]))

    def registers(columns: Columns) -> Mask:
        each = registers_of(columns)
        ok = each <= min(255, target.vector_registers + 64)
        if target.registers:
            ok &= each * threads_of(columns) <= target.registers
        return np.asarray(ok)

    def body(columns: Columns) -> Mask:
        work = columns["tile_m"] * columns["tile_n"] * columns["unroll"]
        return np.asarray((work <= _UNROLLED) & (columns["depth"] % columns["unroll"] == 0))

    def band(columns: Columns) -> Mask:
        return np.asarray(lines_of(sizes_of(task, columns), columns)[0] % columns["band"] == 0)

    def algorithm(columns: Columns) -> Mask:
        direct = (columns["algorithm"] == "direct") & (columns["layout"] == "padded")
        ok = direct & (columns["depth"] <= 32)
        for name in ITEM:
            steps = (columns["depth"] % step_depth(name) == 0) & (columns["depth"] <= _DEPTHS[-1])
            ok |= (columns["algorithm"] == name) & steps & (columns["unroll"] == 1)
        ok |= groups_of(columns) & fits(contraction_of(task), columns)
        for name in FORMS:
            plain = (columns["layout"] == "padded") & (columns["split"] == 1)
            plain &= columns["band"] == 1
            ok |= (columns["algorithm"] == name) & plain & (columns["depth"] <= 32)
        return np.asarray(ok)

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
