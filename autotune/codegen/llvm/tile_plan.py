"""Allocation of tile registers in a nest of products (Intel AMX: eight, 16 rows of 64 bytes).

In: memory for sums, with the loops around its tile products. Out: for each tile of sums and each
operand, the register, with its shape. Every tile has a register of its own: loops around the
products are unrolled as far as tiles depend on them, and each is loaded once an iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import BuildError
from autotune.program import ir
from autotune.program.analysis import recombine
from autotune.program.rewrite import stores_of
from autotune.schedule.loops.nest import perfect_chain
from autotune.types import ITEM_BYTES

REGISTERS = 8
"""Tile registers (Intel AMX, palette 1)."""
ROWS = 16
"""Rows of one."""
ROW_BYTES = 64
"""Bytes of a row."""
_PALETTE = 1
"""The only palette of shapes that processors have."""
_ROW_BYTES_AT, _ROWS_AT = 16, 48
"""Offsets in a configuration: 16 bits per register, 8 bits per register."""


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """A matrix in memory. `offset`: of its first element, in elements of the buffer."""

    buffer: str
    offset: ir.Index
    pitch: int
    """Bytes from one row to the next."""
    rows: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class TileProduct:
    """sums += data x weights; the weights have neighbours along the reduction side by side."""

    sums: MatrixTile
    data: MatrixTile
    weights: MatrixTile


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Registers of the tiles of one nest."""

    numbers: Mapping[MatrixTile, int]

    def configuration(self) -> bytes:
        """What `ldtilecfg` loads: palette, bytes of a row and rows of every register."""
        out = bytearray(64)
        out[0] = _PALETTE
        for tile, number in self.numbers.items():
            at = _ROW_BYTES_AT + 2 * number
            out[at : at + 2] = tile.row_bytes.to_bytes(2, "little")
            out[_ROWS_AT + number] = tile.rows
        return bytes(out)


def is_tiled(stmt: ir.Stmt) -> bool:
    """Whether there are products of matrix tiles in a statement."""
    return any(isinstance(s, ir.For) and s.kind == "tile" for s in ir.walk((stmt,)))


def holds_sums(stmt: ir.Alloc) -> bool:
    """Whether tile products add to the memory of a statement."""
    tiled = (s for s in ir.walk(stmt.body) if isinstance(s, ir.For) and s.kind == "tile")
    return any(stores_of((s,), stmt.buffer.name) for s in tiled)


def plan_of(
    stmts: Sequence[ir.Stmt], buffers: Mapping[str, ir.Buffer], env: Mapping[str, int]
) -> TilePlan:
    """Registers for all products in the statements, where unrolled loops around them are at `env`.
    Raises BuildError where there are too few."""
    found = [p for s in stmts for p in products_in(s, buffers, dict(env))]
    tiles = [t for kind in ("sums", "data", "weights") for t in (getattr(p, kind) for p in found)]
    numbers = {tile: number for number, tile in enumerate(dict.fromkeys(tiles))}
    if len(numbers) > REGISTERS:
        raise BuildError(
            f"{len(numbers)} matrix tiles are needed at a time, and {REGISTERS} exist"
        )
    return TilePlan(numbers)


def products_in(
    stmt: ir.Stmt, buffers: Mapping[str, ir.Buffer], env: dict[str, int]
) -> Iterator[TileProduct]:
    """Those of a statement, where unrolled loops around it are at `env`."""
    if isinstance(stmt, ir.For) and stmt.kind == "tile":
        product = product_of(stmt, buffers, env)
        if product is not None:
            yield product
    elif isinstance(stmt, ir.For) and (stmt.kind == "unroll" or stmt.extent == 1):
        for i in range(stmt.extent):
            for inner in stmt.body:
                yield from products_in(inner, buffers, env | {stmt.var: i})
    elif isinstance(stmt, ir.For | ir.If | ir.Alloc):
        for inner in stmt.body:
            yield from products_in(inner, buffers, env)


def product_of(
    loop: ir.For, buffers: Mapping[str, ir.Buffer], env: Mapping[str, int]
) -> TileProduct | None:
    """The product of a tile loop; None where all of it lies outside of the output."""
    rows, lanes, groups, pair = (c.var for c in perfect_chain(loop, 4))
    extents = {c.var: c.extent for c in perfect_chain(loop, 4)}
    bounds, store = _guarded_sum(loop)
    fixed = {v: ir.Index((), i) for v, i in env.items()}
    for var in (rows, lanes):
        extents[var] = _inside(var, extents, bounds, fixed)
    if not extents[rows] * extents[lanes]:
        return None
    data, weights = _factors(store.value)
    count = extents[pair]

    def tile(at: ir.Load | ir.Store, down: str, along: Mapping[str, int]) -> MatrixTile:
        """The matrix whose rows are `down`; elements of a row lie side by side."""
        buffer = buffers[at.buffer]
        flat = ir.Index()
        for i, stride in zip(at.indices, buffer.strides, strict=True):
            flat = flat + i.substitute(fixed) * stride
        flat = recombine(flat)
        pitch, start = flat.coefficient(down), flat.substitute(dict.fromkeys(extents, ir.Index()))
        lies = start + ir.index(down) * pitch
        for var, step in along.items():
            lies = lies + ir.index(var) * step
        if lies != flat:
            raise BuildError(f"{at.buffer} is no matrix of {down} by {', '.join(along)}")
        width = math.prod(extents[v] for v in along) * ITEM_BYTES[buffer.dtype]
        if extents[down] > ROWS or width > ROW_BYTES:
            raise BuildError(f"{at.buffer}: {extents[down]} rows of {width} bytes are no tile")
        return MatrixTile(at.buffer, start, pitch * ITEM_BYTES[buffer.dtype], extents[down], width)

    return TileProduct(
        sums=tile(store, rows, {lanes: 1}),
        data=tile(data, rows, {groups: count, pair: 1}),
        weights=tile(weights, groups, {lanes: count, pair: 1}),
    )


def _guarded_sum(loop: ir.For) -> tuple[list[ir.Bound], ir.Store]:
    """What a tile loop adds, and where."""
    bounds: list[ir.Bound] = []
    body = perfect_chain(loop, 4)[-1].body
    while len(body) == 1 and isinstance(body[0], ir.If):
        bounds += body[0].bounds
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], ir.Store) or body[0].combine != "sum":
        raise BuildError(f"tile loop {loop.var} holds more than a sum of products")
    return bounds, body[0]


def _inside(
    var: str, extents: Mapping[str, int], bounds: Sequence[ir.Bound], fixed: Mapping[str, ir.Index]
) -> int:
    """Iterations of a loop of the tile, from its first, in which all bounds hold."""
    count = extents[var]
    for bound in bounds:
        at = bound.index.substitute(fixed)
        step, others = at.coefficient(var), at.vars() - {var}
        if not others <= extents.keys():
            raise BuildError(f"whether {at} is in a tile depends on loops that are not unrolled")
        if others:
            continue  # another loop of the tile answers for it
        hits = [bound.lo <= at.const + step * i < bound.hi for i in range(count)]
        count = sum(hits)
        if not all(hits[:count]):
            raise BuildError(f"rows of a tile begin outside of what {at} bounds")
    return count


def _factors(value: ir.Value) -> tuple[ir.Load, ir.Load]:
    """(data, weights) of a product of widened elements."""
    loads = []
    for factor in value.args if isinstance(value, ir.Apply) and value.fn == "mul" else ():
        widened = isinstance(factor, ir.Apply) and factor.fn.startswith("to_")
        inner = factor.args[0] if isinstance(factor, ir.Apply) and widened else None
        if isinstance(inner, ir.Load):
            loads.append(inner)
    if len(loads) != 2:
        raise BuildError(f"matrix tiles need a product of two widened loads, got {value}")
    return loads[0], loads[1]


def without_zeros(body: Sequence[ir.Stmt], sums: set[str]) -> tuple[Sequence[ir.Stmt], bool]:
    """(the nests less a first one that only sets the sums to zero, whether there was one)."""
    stores = stores_of((body[0],))
    zero = all(
        s.buffer in sums and not s.combine and isinstance(s.value, ir.Const) and s.value.value == 0
        for s in stores
    )
    zero = zero and len(body) > 1 and is_tiled(body[1]) and not is_tiled(body[0])
    return (body[1:], True) if zero else (body, False)
