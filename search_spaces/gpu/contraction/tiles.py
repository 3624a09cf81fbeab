"""Tiled contractions on GPUs: parts of the schedule of a block's tile, which algorithms share.

In: a contraction and a tile. Out: steps. A block computes `rows` x `columns` of the product (rows:
all output points of a convolution, in one), `depth` of the reduction at a time: its threads copy
both operands to shared memory, wait, and each adds up its `tile_m` x `tile_n` in registers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from autotune.program.ir import WARP, For, Store, walk
from autotune.program.rewrite import value_loads
from autotune.schedule.gpu.bind import Bind, Privatize
from autotune.schedule.gpu.pipeline import Asynchronous, Pipeline
from autotune.schedule.gpu.shared import Shared, UniformBounds
from autotune.schedule.loops.nest import Fuse, Reorder, Unroll, Vectorize
from autotune.schedule.loops.partial import Partial
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.target import Target
from autotune.types import Task
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import AMPERE, attempt, generation
from search_spaces.params import Config

_UNROLLED_COPIES = 16
"""Copies of a thread per stage, up to which their loop is unrolled."""
_ACCESS_BYTES = 16
"""Bytes of a thread's widest access to memory (specified: PTX ISA)."""
PARTS = "k_p"
"""Loop over the parts of a split reduction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Sizes of a block's tile and of a thread's."""

    tile_m: int
    tile_n: int
    threads_m: int
    threads_n: int
    depth: int
    unroll: int
    stages: int
    split: int
    warps: bool
    """Whether `threads_m` and `threads_n` count warps."""
    asynchronous: bool
    """Whether copies are started iterations before they are waited for."""

    @staticmethod
    def of(config: Config, target: Target, *, warps: bool = False) -> Tile:
        sizes = [f.name for f in dataclasses.fields(Tile) if f.type == "int"]
        return Tile(
            **{name: config.number(name) for name in sizes},
            warps=warps,
            asynchronous=config.number("stages") > 1 and generation(target) >= AMPERE,
        )

    @property
    def lanes(self) -> int:
        """Neighbouring columns of a thread."""
        return min(4, self.tile_n)

    @property
    def rows(self) -> int:
        return self.tile_m * self.threads_m

    @property
    def columns(self) -> int:
        return self.tile_n * self.threads_n

    @property
    def threads(self) -> int:
        return self.threads_m * self.threads_n * (WARP if self.warps else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A contraction as a batch of matrix products: rows x depth times depth x columns."""

    count: int
    rows: int
    columns: int
    depth: int
    run: int
    """Elements of the data side by side along the reduction."""
    flat: bool
    """Whether the batch is part of the rows."""
    transposed: bool
    """Whether the weights lie side by side along the reduction."""


def product_of(task: Task, c: Contraction) -> Product:
    """The products a contraction is made of, one per group or batch element."""
    shared = len(task.value(c.weights).type.shape) == 2 or c.rows is not None
    rows = c.points[1] * c.row_count * (c.count if shared else 1)
    return Product(
        count=c.groups if shared else c.count,
        rows=rows, columns=c.channels[1], depth=c.depth, run=c.reduce[-1][1], flat=shared,
        transposed=c.channel_dim != c.weight_rank - 1,
    )  # fmt: skip


def tile_product(
    builder: ScheduleBuilder,
    c: Contraction,
    p: Product,
    tile: Tile,
    *,
    order: str,
    along: int,
    band: int = 1,
) -> None:
    """A product's tiles, blocks, threads and copies; data are read in vectors of `along`."""
    c = split_reduction(builder, c, tile)
    outer = split_outputs(builder, c, p, tile)
    inner = ("m_i", "n_v", "n_lane")
    builder.apply(CacheWrite(buffer=c.tensor, loops=("m_t", "n_t", *inner)))
    builder.apply(Reorder(loops=("m_t", "n_t", "k_i", *inner)))
    data, weights = operands_of(builder, c)
    builder.apply(
        Shared(loop="k_o", buffers=(data, weights), pads=(4 if tile.rows > 4 else 0, 0),
        axes=((("k_i",), ("m_t", "m_i")), (("k_i",), ("n_v", "n_t", "n_lane"))),
    ))  # fmt: skip
    bind_blocks(builder, outer, order, band)
    # What is transposed on the way is copied one by one if nobody waits for it.
    along = 1 if tile.asynchronous else along
    bind_copy(builder, data, (1, 0), vector=along, tile=tile)
    if p.transposed:
        along = 1 if tile.asynchronous else vector_of(p.depth, tile.depth)
        bind_copy(builder, weights, (1, 0), vector=along, tile=tile)
    else:
        along = vector_of(p.columns, tile.columns)
        bind_copy(builder, weights, (0, 1), vector=along, tile=tile)
    _bind_tile(builder, c, p, tile)
    if tile.stages > 1:
        builder.apply(Pipeline(loop="k_o", stages=tile.stages))


def swapped(rank: int) -> tuple[int, ...]:
    """The two last dimensions of weights the other way round."""
    return (*range(rank - 2), rank - 1, rank - 2)


def split_outputs(builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile) -> list[str]:
    """Split rows and columns; gives the loops over blocks, those of the two last."""
    batch, row, channel = row_and_channel(builder, c, p)
    builder.split(row, tile.rows, "m_b", "m_l")
    builder.split("m_l", tile.tile_m, "m_t", "m_i")
    builder.split(channel, tile.columns, "n_b", "n_l")
    builder.split("n_l", tile.threads_n * tile.lanes, "n_v", "n_r")
    builder.split("n_r", tile.lanes, "n_t", "n_lane")
    builder.apply(Reorder(loops=("m_b", "n_b", "m_t", "n_t", "m_i", "n_v", "n_lane")))
    return [*batch, "m_b", "n_b"]


def row_and_channel(
    builder: ScheduleBuilder, c: Contraction, p: Product
) -> tuple[list[str], str, str]:
    """All rows of a product as one loop: (loops around it, it, the loop over columns)."""
    batch, rows = [n for n, _ in c.batch], [c.points[0]]
    if c.rows:
        rows = [c.rows[0], *rows]
    if p.flat:
        batch, rows = [], [*batch, *rows]
    row, channel = builder.fuse(rows, "m"), c.channels[0]
    parts = [PARTS] if c.tensor.endswith(".parts") else []
    if c.groups > 1:
        builder.split(channel, c.channels[1], "group", "channel")
        builder.apply(Reorder(loops=("group", row)))
        return [*parts, "group"], row, "channel"
    return [*parts, *batch], row, channel


def split_reduction(builder: ScheduleBuilder, c: Contraction, tile: Tile) -> Contraction:
    """The reduction as `k_o` steps of `k_i`: whole runs of the data where the depth divides them,
    else all of it in one. With `split`, steps are dealt out to so many parts, which the
    contraction that is given back computes."""
    loops, steps = [n for n, _ in c.reduce], "k_o" if tile.split == 1 else "k_steps"
    if len(loops) == 1 or c.reduce[-1][1] % tile.depth:
        builder.split(builder.fuse(loops, "k_all"), tile.depth, steps, "k_i")
    else:
        builder.split(loops[-1], tile.depth, "k_run", "k_i")
        builder.fuse([*loops[:-1], "k_run"], steps)
    if tile.split == 1:
        return c
    builder.split(steps, builder.extent(steps) // tile.split, PARTS, "k_o")
    builder.apply(Partial(buffer=c.tensor, loop=PARTS))

    def part(loop: tuple[str, int]) -> tuple[str, int]:
        return f"{loop[0]}_part", loop[1]

    return dataclasses.replace(
        c, tensor=f"{c.tensor}.parts", batch=tuple(map(part, c.batch)), points=part(c.points),
        rows=part(c.rows) if c.rows else None, channels=part(c.channels),
    )  # fmt: skip


def bind_blocks(builder: ScheduleBuilder, outer: list[str], order: str, band: int = 1) -> None:
    """Tiles as blocks. Those that follow each other share rows, or columns; with a `band`, so many
    lines of them advance together: what runs at a time then reads less."""
    *batch, first, second = outer
    if order == "columns_first":
        first, second = second, first
        builder.apply(Reorder(loops=(first, second)))
    loops = [*batch, first, second]
    if band > 1:
        builder.split(first, band, f"{first}_o", f"{first}_i")
        loops = [*batch, f"{first}_o", second, f"{first}_i"]
        builder.apply(Reorder(loops=tuple(loops[-2:])))
    builder.apply(Bind(loop=builder.fuse(loops, "blocks"), axis="block.x"))


def operands_of(builder: ScheduleBuilder, c: Contraction) -> tuple[str, str]:
    """The buffers that the sum reads: data and weights."""
    for stmt in walk(builder.program.body):
        if isinstance(stmt, Store) and stmt.buffer == f"{c.tensor}.reg" and stmt.combine:
            names = [v.buffer for v in value_loads(stmt.value)]
            return names[0], names[1]
    raise ValueError(f"{c.tensor} is not a sum")


def vector_of(extent: int, size: int, item_bytes: int = 4) -> int:
    """Elements of one access along a dimension of that extent, a tile of that size of it."""
    most = _ACCESS_BYTES // item_bytes
    return next(v for v in (16, 8, 4, 2, 1) if v <= most and extent % v == 0 and size % v == 0)


def data_vector(task: Task, c: Contraction, p: Product, depth: int) -> int:
    """Along the reduction, if its steps do not cross the end of a run."""
    whole = p.run % depth == 0 or len(c.reduce) == 1
    unit = task.value(c.data).layout.strides[-1] == 1
    return vector_of(p.run, depth, c.item_bytes) if whole and unit else 1


def bind_copy(
    builder: ScheduleBuilder, name: str, order: tuple[int, int], *, vector: int, tile: Tile
) -> None:
    """Copy by all threads, vectors along the last of the dimensions in `order`."""
    base = name.replace(".", "_")
    dims = [f"{base}_s{d}" for d in order]
    builder.apply(Reorder(loops=tuple(dims)))
    builder.split(dims[-1], vector, f"{base}_w", f"{base}_v")
    builder.apply(Fuse(outer=dims[0], inner=f"{base}_w", fused=f"{base}_f"))
    threads = min(tile.threads, builder.extent(f"{base}_f"))
    builder.split(f"{base}_f", threads, f"{base}_c", f"{base}_t")
    builder.apply(Reorder(loops=(f"{base}_t", f"{base}_c")))
    builder.apply(Bind(loop=f"{base}_t", axis="thread.x"))
    if builder.extent(f"{base}_c") <= _UNROLLED_COPIES:
        builder.apply(Unroll(loops=(f"{base}_c",)))
    builder.apply(UniformBounds(loops=(f"{base}_v",)))
    if tile.asynchronous and attempt(builder, Asynchronous(loop=f"{base}_v")):
        return
    if vector > 1:
        builder.apply(Vectorize(loops=(f"{base}_v",)))


def _bind_tile(builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile) -> None:
    """Threads of the register tile's nests, each keeping its own part."""
    found = [s.var for s in walk(builder.program.body) if isinstance(s, For)]
    kinds = [v.removeprefix("m_t") for v in found if v == "m_t" or v.startswith("m_t_")]
    for kind in kinds:
        builder.apply(Fuse(outer=f"m_t{kind}", inner=f"n_t{kind}", fused=f"t{kind}"))
        builder.apply(Bind(loop=f"t{kind}", axis="thread.x"))
        builder.apply(Unroll(loops=(f"m_i{kind}", f"n_v{kind}")))
        even = p.columns % tile.lanes == 0
        if even:
            builder.apply(UniformBounds(loops=(f"n_lane{kind}",)))
        if tile.lanes > 1 and (even or not kind.startswith("_out")):
            builder.apply(Vectorize(loops=(f"n_lane{kind}",)))
        else:
            builder.apply(Unroll(loops=(f"n_lane{kind}",)))
    builder.apply(Privatize(buffer=f"{c.tensor}.reg"))
    if tile.unroll > 1:
        builder.split("k_i", tile.unroll, "k_s", "k_u")
        builder.apply(Unroll(loops=("k_u",)))
