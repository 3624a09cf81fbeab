"""Attention by an online softmax: scores are made, weighed and summed up a block at a time.

`rows` queries and `keys` keys make a block of scores that stays in the cache (see
`autotune.schedule.algorithms.attention`); keys and values are packed once per element of the
batch. Both products have a register tile of their own: `score_tile` rows times `score_vectors`
vectors of keys, `mix_tile` rows times `mix_vectors` vectors of columns. Constants of the prior
were fitted on Zen 4; the layers that were measured for it were not written down.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.schedule.algorithms.attention import FlashAttention
from autotune.schedule.base import Schedule
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import CacheRead, CacheReadRounded
from autotune.sizes import is_size
from autotune.target import Target
from autotune.tasks.build import loop_var
from autotune.tasks.flops import causal_offset, causal_share, task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, Algorithm
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, inline_locals, output_name, share
from search_spaces.cpu.attention.shape import AttentionTask, ProductPart, split_rows
from search_spaces.cpu.contraction.rates import live_registers, row_cycles, tile_rate
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint

_ROWS = (4, 8, 12, 16, 24, 28, 32, 48, 56, 64, 84, 96, 128)
"""Rows of queries in a block."""
_TILES = (1, 2, 4, 6, 7, 8, 12, 14)
"""Rows of a register tile."""
_KEYS = (64, 2048)
"""Keys of a block, the fewest and the most where there are several blocks."""
_SIZES = 6
"""Sizes of blocks of keys to choose from, at most."""
_LOOPS = {"score": ("att_sr", "att_sn", "att_sk"), "mix": ("att_mr", "att_md", "att_mn")}
"""Loops of the two products: over rows, over columns and over what is summed."""
_UNROLLED = 480
"""Multiply-adds of all unrolled bodies: more takes long to build and gains nothing."""
SOFTMAX_CYCLES = 14.0
"""Cycles per vector of scores: the largest, the exponential, the sum."""
ROW_CYCLES = 60.0
"""Cycles per row and block of keys: reductions over lanes."""
RAGGED_COST = 1.06
"""Time of a product whose last tile is smaller than the others, over that of whole ones."""
SPILL_COST = 2.0
"""The same of a tile with more accumulators and operands than registers."""
EXPOSED_STREAM = 0.3
"""Share of a stream from a cache that arithmetic does not hide."""
OPERANDS_IN_L2 = 0.75
"""Share of the second cache that keys, values and a block of scores may take and stay there."""
SCORE_PASSES = 4.0
"""Times that scores are written and read."""


class OnlineSoftmax(Algorithm):
    """The one algorithm of the attention rule."""

    name = "attention"
    reference = "Milakov & Gimelshein 2018; Dao et al., FlashAttention, 2022"

    def label(self, schedule: Schedule) -> str:
        return self.name if any(isinstance(step, FlashAttention) for step in schedule) else ""

    def flops(self, task: Task, schedule: Schedule) -> int:
        """Without blocks of scores that a causal mask hides whole."""
        step = next(step for step in schedule if isinstance(step, FlashAttention))
        node = next((n for n in task.nodes if n.op == "causal"), None)
        if node is None:
            return task_flops(task)
        rows, keys = task.value(node.outputs[0]).type.shape[-2:]
        seen = causal_share(rows, keys, causal_offset(node), step.rows, step.keys)
        return round(task_flops(task) * seen)

    def params(self, a: AttentionTask, target: Target) -> tuple[Param, ...]:
        """What its configs choose from."""
        vectors = (1, 2, 3, 4, 5, 6)
        return (
            Param(name="rows", choices=_row_blocks(a)),
            Param(name="keys", choices=_key_blocks(a, target)),
            Param(name="score_tile", choices=_TILES),
            Param(name="score_vectors", choices=vectors),
            Param(name="mix_tile", choices=_TILES),
            Param(name="mix_vectors", choices=vectors),
            Param(name="unroll", choices=(1, 2, 4)),
        )

    def constraints(self, a: AttentionTask, target: Target) -> tuple[Constraint, ...]:
        """Which of them are valid."""
        registers, lanes = target.vector_registers, target.lanes()

        def fits(configs: Configs) -> npt.NDArray[Any]:
            ok = np.ones(len(configs["rows"]), bool)
            for which in ("score", "mix"):
                tile, vectors = configs[f"{which}_tile"], configs[f"{which}_vectors"]
                spare = vectors + (1 if registers < 32 else 0)
                ok &= np.asarray(tile * vectors + spare <= registers)
            return ok

        def whole(configs: Configs) -> npt.NDArray[Any]:
            keys, size = configs["keys"], configs["score_vectors"] * lanes
            ok = (keys % size == 0) | (keys == a.keys)
            ok &= configs["score_vectors"] <= np.ceil(keys / lanes)
            ok &= configs["mix_vectors"] <= math.ceil(a.width / lanes)
            for which in ("score", "mix"):
                # A short last tile has too few sums to hide how long each takes.
                short = configs["rows"] % configs[f"{which}_tile"]
                ok &= (short == 0) | (2 * short >= configs[f"{which}_tile"])
            ok &= (a.depth % configs["unroll"] == 0) & (keys % configs["unroll"] == 0)
            return np.asarray(ok)

        def body(configs: Configs) -> npt.NDArray[Any]:
            return np.asarray(unrolled(a, configs, lanes) <= _UNROLLED)

        return (
            Constraint("registers", fits),
            Constraint("blocks", whole),
            Constraint("unrolled body", body),
        )

    def write(
        self, builder: ScheduleBuilder, a: AttentionTask, config: Config, target: Target
    ) -> None:
        """Apply the steps of a config."""
        task, lanes = builder.task, target.lanes()
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output, *_around_softmax(task, a))))
        builder.apply(
            FlashAttention(scores=a.score.tensor, weights=a.weights, mix=a.mix.tensor,
            rows=config.number("rows"), keys=config.number("keys"), lanes=lanes,
        ))  # fmt: skip
        _tile_product(builder, a.score, config, lanes)
        _tile_product(builder, a.mix, config, lanes)
        batch = [loop_var(a.score.tensor, f"b{i}") for i in range(len(a.batch))]
        whole = split_rows(a, target)
        for part in (a.score, a.mix):
            size = lanes * config.number(f"{part.name}_vectors")
            block = config.number("keys") if is_size(a.keys) else 1
            _pack(builder, part, size, "" if whole else batch[-1], block)
            last = f"{part.packed}_p{2 if not whole else part.rank}"
            builder.split(last, lanes, f"{last}_o", f"{last}_v")
            builder.apply(Vectorize(loops=(f"{last}_v",)))
            if whole:
                loops = [f"{part.packed}_p{i}" for i in range(part.rank)]
                share(builder, target, loops, f"{part.packed}_shared")
        share(builder, target, [*batch, "att_b"] if whole else batch, "shared")

    def cycles(self, a: AttentionTask, machine: Machine, configs: Configs) -> Column:
        """Cycles of the whole task per config, on all threads together."""
        return _cycles(a, machine, configs)


ONLINE_SOFTMAX = OnlineSoftmax()
ALGORITHMS.add(ONLINE_SOFTMAX.name, ONLINE_SOFTMAX)


def unrolled(a: AttentionTask, configs: Configs, lanes: int) -> npt.NDArray[Any]:
    """Multiply-adds of the unrolled bodies, with the copies that tails need."""
    total = np.zeros(len(configs["rows"]))
    for which, extent in (("score", configs["keys"]), ("mix", a.width)):
        size = configs[f"{which}_vectors"] * lanes
        copies = np.where(extent % size, 2, 1)
        copies = copies * np.where(configs["rows"] % configs[f"{which}_tile"], 2, 1)
        held = configs[f"{which}_tile"] * configs[f"{which}_vectors"] * configs["unroll"]
        total = total + held * copies
    return np.asarray(total, np.float64)


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


def _tile_product(builder: ScheduleBuilder, part: ProductPart, config: Config, lanes: int) -> None:
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


def _pack(builder: ScheduleBuilder, part: ProductPart, size: int, loop: str, block: int) -> None:
    """Pack keys or values at the start of a loop, where they are one matrix; or all of them at
    the start of everything. In whole blocks of so many keys."""
    first = 0 if not loop else part.rank - 2
    outer = part.rank - 2 - first
    # The split dimension becomes two: blocks come first, a block's columns last.
    split = outer + part.channel_dim
    other = outer + (0 if part.channel_dim else 2)
    keys = part.channel_dim if part.name == "score" else 1 - part.channel_dim
    dims, splits = tuple(range(first, part.rank)), ((split, size),)
    order = (*range(outer), split, other, split + 1)
    if block == 1:
        builder.apply(
            CacheRead(buffer=part.packed, loop=loop, dims=dims, splits=splits, order=order)
        )
    else:
        builder.apply(
            CacheReadRounded(buffer=part.packed, loop=loop, dims=dims, splits=splits, order=order,
            rounded=((part.rank - 2 + keys, block),),
        ))  # fmt: skip


# ------------------------------------------------------------------------------------------ prior


def _cycles(a: AttentionTask, machine: Machine, configs: Configs) -> Column:
    """Both products, the softmax between them, and waiting for scores, keys and values."""
    lanes = float(machine.target.lanes())
    rows, keys = (configs[p].astype(np.float64) for p in ("rows", "keys"))
    blocks = np.ceil(a.rows / rows)
    computed = a.count * blocks * rows * _share_seen(a, rows, keys)
    total = _product(machine, configs, "score", a.keys, a.depth) * a.depth
    total = total + _product(machine, configs, "mix", a.width, a.keys) * a.keys
    total = total * computed + computed * math.ceil(a.keys / lanes) * SOFTMAX_CYCLES
    total = total + computed * (a.keys / keys) * ROW_CYCLES
    total = total + _score_cycles(a, machine, rows, keys, computed * a.keys * 4.0 * SCORE_PASSES)
    total = total + _operand_cycles(a, machine, rows * keys * 4.0, a.count * blocks)
    chunks = a.count * (blocks if split_rows(a, machine.target) else 1.0) + 0 * rows
    return np.asarray(total * busiest_share(chunks, machine.target.threads), np.float64)


def ideal_cycles(a: AttentionTask, target: Target) -> float:
    """Cycles of the multiply-adds alone."""
    return a.count * a.rows * a.keys * (a.depth + a.width) / target.lanes()


def _score_cycles(
    a: AttentionTask, machine: Machine, rows: Column, keys: Column, moved: Column
) -> Column:
    """Cycles of waiting for blocks of scores that do not stay in the innermost cache, and for
    those that leave the next one too."""
    cpu = machine.cpu
    block = rows * keys * 4.0
    held = block + np.minimum(keys * (a.depth + a.width) * 4.0, _operand_bytes(a))
    near = np.where(block > machine.l1_bytes / 2, moved / cpu.l2_stream_bytes_per_cycle, 0)
    far = np.where(held > machine.l2_bytes, moved / cpu.l3_stream_bytes_per_cycle, 0)
    return np.asarray(near * EXPOSED_STREAM + far * EXPOSED_STREAM)


def _operand_cycles(a: AttentionTask, machine: Machine, block: Column, times: Column) -> Column:
    """Cycles of waiting for keys and values, which come once per block of rows."""
    cpu, nbytes = machine.cpu, _operand_bytes(a)
    far = nbytes + block > OPERANDS_IN_L2 * machine.l2_bytes
    speed = np.where(far, cpu.l3_stream_bytes_per_cycle, cpu.l2_stream_bytes_per_cycle)
    return np.asarray(times * nbytes / speed * EXPOSED_STREAM)


def _operand_bytes(a: AttentionTask) -> float:
    """Keys and values of an element of the batch."""
    return a.keys * (a.depth + a.width) * 4.0


def _share_seen(a: AttentionTask, rows: Column, keys: Column) -> Column:
    """Share of all blocks of keys that are not left out by the mask."""
    if a.seen is None:
        return np.ones(len(rows))
    pairs, which = np.unique(np.stack([rows, keys]), axis=1, return_inverse=True)
    shares = [
        causal_share(a.rows, a.keys, a.seen, int(size), int(block)) for size, block in pairs.T
    ]
    return np.asarray(np.asarray(shares)[which.reshape(-1)], np.float64)


def _product(machine: Machine, configs: Configs, which: str, channels: int, depth: int) -> Column:
    """Cycles per row and step of the reduction of a product."""
    lanes = machine.target.lanes()
    vectors = configs[f"{which}_vectors"].astype(np.float64)
    points = configs[f"{which}_tile"].astype(np.float64)
    given = {"lanes": np.full(len(points), lanes), "unroll": configs["unroll"]}
    count = math.ceil(channels / lanes)
    total = row_cycles(machine, given, points, vectors, total=count, depth=depth, rate=tile_rate)
    ragged = np.where(count % vectors != 0, RAGGED_COST, 1.0)
    ragged = ragged * np.where(configs["rows"] % points != 0, RAGGED_COST, 1.0)
    live = live_registers(configs, points, vectors, target=machine.target)
    spilled = np.where(live > machine.target.vector_registers, SPILL_COST, 1.0)
    return np.asarray(total * ragged * spilled)
