"""Attention: a softmax between two products, in one kernel over blocks of rows.

`rows` queries and `keys` keys make a block of scores that stays in the cache (see
`autotune.schedule.algorithms.attention`); keys and values are packed once per element of the
batch. Both products have a register tile of their own: `score_tile` rows times `score_vectors`
vectors of keys, `mix_tile` rows times `mix_vectors` vectors of columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.schedule import Schedule
from autotune.schedule.algorithms.attention import FlashAttention
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import CacheRead
from autotune.target import Target
from autotune.tasks.build import loop_var
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder, inline_locals, output_name, share
from search_spaces.cpu.attention.prior import cycles, ideal_cycles
from search_spaces.cpu.attention.shape import (
    AttentionTask,
    ProductPart,
    accesses_of,
    attention_of,
    split_rows,
)
from search_spaces.params import Config, Param
from search_spaces.space import Columns, Constraint, Space

_ROWS = (4, 8, 12, 16, 24, 28, 32, 48, 56, 64, 84, 96, 128)
_TILES = (1, 2, 4, 6, 7, 8, 12, 14)
_KEYS = (64, 2048)
"""Of a block, the fewest and the most where there are several."""
_SIZES = 6
"""Sizes of blocks of keys to choose from, at most."""
_LOOPS = {"score": ("att_sr", "att_sn", "att_sk"), "mix": ("att_mr", "att_md", "att_mn")}
"""Of the products: over rows, columns and what is summed."""
_UNROLLED = 480
"""Multiply-adds of all unrolled bodies: more takes long to build and gains nothing."""


class AttentionRule(Rule):
    """See the module."""

    name = "attention"
    priority = 20
    sampled_rows = 50_000

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and attention_of(task) is not None

    # --------------------------------------------------------------------------------------- space

    def space(self, task: Task, target: Target) -> Space:
        a = _described(task)
        vectors = (1, 2, 3, 4, 5, 6)
        params = (
            Param(name="rows", choices=_row_blocks(a)),
            Param(name="keys", choices=_key_blocks(a, target)),
            Param(name="score_tile", choices=_TILES),
            Param(name="score_vectors", choices=vectors),
            Param(name="mix_tile", choices=_TILES),
            Param(name="mix_vectors", choices=vectors),
            Param(name="unroll", choices=(1, 2, 4)),
        )
        return Space(params, self._constraints(a, target))

    def _constraints(self, a: AttentionTask, target: Target) -> tuple[Constraint, ...]:
        registers, lanes = target.vector_registers, target.lanes()

        def fits(columns: Columns) -> npt.NDArray[Any]:
            ok = np.ones(len(columns["rows"]), bool)
            for which in ("score", "mix"):
                tile, vectors = columns[f"{which}_tile"], columns[f"{which}_vectors"]
                spare = vectors + (1 if registers < 32 else 0)
                ok &= np.asarray(tile * vectors + spare <= registers)
            return ok

        def whole(columns: Columns) -> npt.NDArray[Any]:
            keys, size = columns["keys"], columns["score_vectors"] * lanes
            ok = (keys % size == 0) | (keys == a.keys)
            ok &= columns["score_vectors"] <= np.ceil(keys / lanes)
            ok &= columns["mix_vectors"] <= math.ceil(a.width / lanes)
            for which in ("score", "mix"):
                # A short last tile has too few sums to hide how long each takes.
                short = columns["rows"] % columns[f"{which}_tile"]
                ok &= (short == 0) | (2 * short >= columns[f"{which}_tile"])
            ok &= (a.depth % columns["unroll"] == 0) & (keys % columns["unroll"] == 0)
            return np.asarray(ok)

        def body(columns: Columns) -> npt.NDArray[Any]:
            return np.asarray(_unrolled(a, columns, lanes) <= _UNROLLED)

        return (
            Constraint("registers", fits),
            Constraint("blocks", whole),
            Constraint("unrolled body", body),
        )

    # ------------------------------------------------------------------------------------ schedule

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        a = _described(task)
        builder, lanes = ScheduleBuilder(task), target.lanes()
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output, *_around_softmax(task, a))))
        builder.apply(
            FlashAttention(scores=a.score.tensor, weights=a.weights, mix=a.mix.tensor,
            rows=config.number("rows"), keys=config.number("keys"), lanes=lanes,
        ))  # fmt: skip
        self._product(builder, a.score, config, lanes)
        self._product(builder, a.mix, config, lanes)
        batch = [loop_var(a.score.tensor, f"b{i}") for i in range(len(a.batch))]
        whole = split_rows(a, target)
        for part in (a.score, a.mix):
            size = lanes * config.number(f"{part.name}_vectors")
            self._pack(builder, part, size, "" if whole else batch[-1])
            last = f"{part.packed}_p{2 if not whole else part.rank}"
            builder.split(last, lanes, f"{last}_o", f"{last}_v")
            builder.apply(Vectorize(loops=(f"{last}_v",)))
            if whole:
                loops = [f"{part.packed}_p{i}" for i in range(part.rank)]
                share(builder, target, loops, f"{part.packed}_shared")
        share(builder, target, [*batch, "att_b"] if whole else batch, "shared")
        return builder.schedule

    def _product(
        self, builder: ScheduleBuilder, part: ProductPart, config: Config, lanes: int
    ) -> None:
        """Tile one of the products."""
        short = part.short
        rows, columns, depth = _LOOPS[part.name]
        size, extent = lanes * config.number(f"{part.name}_vectors"), builder.extent(columns)
        builder.split(columns, size, f"{short}_block", f"{short}_rest")
        builder.split(f"{short}_rest", lanes, f"{short}_vector", f"{short}_lane")
        tile_rows, row_count = config.number(f"{part.name}_tile"), builder.extent(rows)
        builder.split(rows, tile_rows, f"{short}_points", f"{short}_point")
        tile = tuple(f"{short}_{t}" for t in ("point", "vector", "lane"))
        builder.apply(Reorder(loops=(f"{short}_block", f"{short}_points", *tile)))
        buffer = part.tensor if part.name == "score" else f"{part.tensor}.block"
        builder.apply(CacheWrite(buffer=buffer, loops=tile))
        kinds = ("", "_init", "_out")
        builder.apply(Vectorize(loops=builder.present([f"{tile[-1]}{k}" for k in kinds])))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        unroll = config.number("unroll")
        if unroll > 1:
            builder.split(depth, unroll, f"{short}_step", f"{short}_part")
            flat.append(f"{short}_part")
        builder.apply(Unroll(loops=builder.present(flat)))
        for loop, tail in (("block", extent % size), ("points", row_count % tile_rows)):
            if tail:
                builder.apply(Specialize(loop=f"{short}_{loop}", at=f"{buffer}.reg"))

    def _pack(self, builder: ScheduleBuilder, part: ProductPart, size: int, loop: str) -> None:
        """Pack keys or values at the start of a loop, where they are one matrix; or all of them at
        the start of everything."""
        first = 0 if not loop else part.rank - 2
        outer = part.rank - 2 - first
        # The split dimension becomes two: blocks come first, a block's columns last.
        split = outer + part.channel_dim
        other = outer + (0 if part.channel_dim else 2)
        builder.apply(
            CacheRead(buffer=part.packed, loop=loop, dims=tuple(range(first, part.rank)),
            splits=((split, size),), order=(*range(outer), split, other, split + 1),
        ))  # fmt: skip

    # ----------------------------------------------------------------------------------- structure

    def structure(self, task: Task, machine: Machine, columns: Columns) -> TileStructure:
        target = machine.target
        a = _described(task)
        number = {p: columns[p].astype(np.float64) for p in columns}
        ones, lanes = np.ones(len(number["rows"])), target.lanes()
        held = [number[f"{w}_tile"] * number[f"{w}_vectors"] for w in ("score", "mix")]
        rows = np.minimum(number["rows"], a.rows)
        blocks = np.ceil(a.rows / number["rows"])
        return TileStructure(
            extents={"batch": a.count, "row": a.rows, "key": a.keys, "depth": a.depth},
            reduce_axes=frozenset(("key", "depth")),
            accesses=accesses_of(a),
            tiles=(
                {"batch": ones},
                {"row": rows, "key": np.minimum(number["keys"], a.keys)},
                {
                    "row": np.minimum(number["score_tile"], rows),
                    "key": np.minimum(number["score_vectors"] * lanes, a.keys),
                },
            ),
            flops=task_flops(task),
            accumulators=np.maximum(*held),
            vector_axis_waste=ones,
            modelled=np.ones(len(ones), bool),  # below 1 where a mask leaves blocks out
            parallel_chunks=a.count * (blocks if split_rows(a, target) else ones),
            unrolled=_unrolled(a, columns, lanes),
            extra=number,
        )

    def prior(self, task: Task, machine: Machine, columns: Columns) -> Prior:
        a = _described(task)
        peak = ideal_cycles(a, machine.target)
        return Prior(cycles=cycles(a, machine, columns), peak_cycles=peak)


def _described(task: Task) -> AttentionTask:
    found = attention_of(task)
    assert found is not None
    return found


def _around_softmax(task: Task, a: AttentionTask) -> tuple[str, str]:
    """What the softmax is taken of, and what the second product reads."""
    makers = {n.outputs[0]: n for n in task.nodes}
    return makers[a.weights].inputs[0], makers[a.mix.tensor].inputs[0]


def _row_blocks(a: AttentionTask) -> tuple[int, ...]:
    """Usual sizes, and those that cut the rows into a few equal blocks."""
    even = {-(-a.rows // n) for n in range(1, 9)}
    return tuple(sorted({r for r in {*_ROWS, *even} if r <= min(a.rows, _ROWS[-1])}))


def _key_blocks(a: AttentionTask, target: Target) -> tuple[int, ...]:
    """All keys at once, and sizes of whole vectors that divide them."""
    least, most = _KEYS
    sizes = [k for k in range(least, min(most, a.keys - 1) + 1) if a.keys % k == 0]
    sizes = [k for k in sizes if k % target.lanes() == 0]
    step = -(-len(sizes) // _SIZES) or 1
    return (*sizes[::-step][::-1], a.keys)


def _unrolled(a: AttentionTask, columns: Columns, lanes: int) -> npt.NDArray[Any]:
    """Multiply-adds of the unrolled bodies, with the copies that tails need."""
    total = np.zeros(len(columns["rows"]))
    for which, extent in (("score", columns["keys"]), ("mix", a.width)):
        size = columns[f"{which}_vectors"] * lanes
        copies = np.where(extent % size, 2, 1)
        copies = copies * np.where(columns["rows"] % columns[f"{which}_tile"], 2, 1)
        held = columns[f"{which}_tile"] * columns[f"{which}_vectors"] * columns["unroll"]
        total = total + held * copies
    return np.asarray(total, np.float64)


RULES.add(AttentionRule.name, AttentionRule())
