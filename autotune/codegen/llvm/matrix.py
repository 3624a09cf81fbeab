"""Products of small matrices in vectors as LLVM IR: Arm's instructions for bfloat16 and bytes.

In: memory for sums whose reduction ends in `tile` loops of two rows and two lanes. Out: vectors
that have both rows of the sums while they grow: [r0 l0, r0 l1, r1 l0, r1 l1]. Before the reduction
these are loaded, or zero where that is all that a nest before it sets, afterwards stored. Operands
are vectors of two runs of neighbours: of both rows of the data, of both lanes of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.llvm.statement import StatementWriter
from autotune.codegen.llvm.text import FunctionText
from autotune.codegen.llvm.tile_plan import (
    MatrixTile,
    is_tiled,
    product_of,
    products_in,
    without_zeros,
)
from autotune.errors import BuildError
from autotune.program.ir import For, Stmt
from autotune.types import ITEM_BYTES

HALF_BYTES = 8
"""Bytes of a run of neighbours, and of a row of sums."""
_PAIR = "<2 x i64>"
_INTEGERS, _FLOATS = ("<4 x i32>", "<16 x i8>"), ("<4 x float>", "<8 x bfloat>")
PRODUCTS = {
    ("bfloat16", "bfloat16", "float32"): ("bfmmla", "+bf16", _FLOATS),
    ("uint8", "int8", "int32"): ("usmmla.v4i32.v16i8", "+i8mm", _INTEGERS),
    ("int8", "int8", "int32"): ("smmla.v4i32.v16i8", "+i8mm", _INTEGERS),
}
"""Types of data, weights and sums -> instruction, its feature, types of its sums and operands."""


class MatrixWriter(StatementWriter):
    """Writes products of small matrices."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self._sums: dict[MatrixTile, str] = {}
        """Cells of sums, while they grow."""
        self._operands: dict[MatrixTile, str] = {}
        """Vectors that are loaded, in this iteration."""

    @property
    def multiplies_matrices(self) -> bool:
        """Whether the target has one of these instructions, and no larger tiles."""
        has = {feature for _, feature, _ in PRODUCTS.values()} & self.features
        return bool(has) and "+amx-tile" not in self.features

    def matrix_body(self, body: Sequence[Stmt]) -> None:
        """What is in memory for sums: nests that set them, add to them, use them."""
        env = {v: i for v, i in self.env.items() if isinstance(i, int)}
        found = [p for s in body if is_tiled(s) for p in products_in(s, self.buffers, env)]
        sums = list(dict.fromkeys(p.sums for p in found))
        body, zeroed = without_zeros(body, {t.buffer for t in sums})
        for stmt in body:
            if not is_tiled(stmt):
                self.stmt(stmt)
                continue
            self._sums = {tile: self.text.cell(_PAIR) for tile in sums}
            for tile, cell in self._sums.items():
                self.text.write(cell, _PAIR, "zeroinitializer" if zeroed else self._halves(tile))
            self._operands.clear()
            self.stmt(stmt)
            self._operands.clear()
            for tile, cell in self._sums.items():
                self._store_halves(tile, self.text.read(cell, _PAIR))
            self.text.drop(self._sums.values())
            self._sums = {}

    def begin_iteration(self) -> None:
        """Operands of another iteration are others."""
        self._operands.clear()

    def matrix_product(self, loop: For) -> None:
        """One product, with what operands it needs."""
        env = {v: i for v, i in self.env.items() if isinstance(i, int)}
        product = product_of(loop, self.buffers, env)
        if product is None:
            return
        tiles = (product.data, product.weights, product.sums)
        data, weights, sums = (self.buffers[t.buffer].dtype for t in tiles)
        name, feature, kinds = PRODUCTS.get((data, weights, sums), ("", "", ("", "")))
        if feature not in self.features:
            raise BuildError(f"no products of matrices of {data} and {weights} on this target")
        cell, (result, operand) = self._sums[product.sums], kinds
        given = [self._as(result, self.text.read(cell, _PAIR))]
        given += [self._as(operand, self._matrix_operand(t)) for t in tiles[:2]]
        name = f"llvm.aarch64.neon.{name}"
        self.text.declare(name, f"declare {result} @{name}({result}, {operand}, {operand})")
        new = self.text.emit(f"call {result} @{name}({', '.join(given)})")
        new = self.text.emit(f"bitcast {result} {new} to {_PAIR}")
        self.text.write(cell, _PAIR, new)

    def _as(self, kind: str, pair: str) -> str:
        """A vector as an argument of another type."""
        return f"{kind} {self.text.emit(f'bitcast {_PAIR} {pair} to {kind}')}"

    def _matrix_operand(self, tile: MatrixTile) -> str:
        if tile not in self._operands:
            self._operands[tile] = self._halves(tile)
        return self._operands[tile]

    def _halves(self, tile: MatrixTile) -> str:
        """Two runs of a matrix in a vector: its rows, or both halves of its only one. What a
        ragged end lacks is 0."""
        align = ITEM_BYTES[self.buffers[tile.buffer].dtype]
        if (tile.rows, tile.row_bytes) == (1, 2 * HALF_BYTES):
            return self.text.emit(f"load {_PAIR}, ptr {self._row(tile, 0)}, align {align}")
        value, kind = "zeroinitializer", _row_type(tile)
        for row in range(tile.rows):
            run = self.text.emit(f"load {kind}, ptr {self._row(tile, row)}, align {align}")
            if kind != "i64":
                run = self.text.emit(f"zext {kind} {run} to i64")
            value = self.text.emit(f"insertelement {_PAIR} {value}, i64 {run}, i64 {row}")
        return value

    def _store_halves(self, tile: MatrixTile, value: str) -> None:
        align, kind = ITEM_BYTES[self.buffers[tile.buffer].dtype], _row_type(tile)
        for row in range(tile.rows):
            run = self.text.emit(f"extractelement {_PAIR} {value}, i64 {row}")
            if kind != "i64":
                run = self.text.emit(f"trunc i64 {run} to {kind}")
            self.text.line(f"store {kind} {run}, ptr {self._row(tile, row)}, align {align}")

    def _row(self, tile: MatrixTile, row: int) -> str:
        """A pointer to a row."""
        buffer = self.buffers[tile.buffer]
        pointer = self.address(buffer, self.linear(tile.offset))
        if not row:
            return pointer
        return self.text.emit(f"getelementptr i8, ptr {pointer}, i64 {row * tile.pitch}")


def _row_type(tile: MatrixTile) -> str:
    """The integer that is as wide as a row."""
    if tile.rows > 2 or tile.row_bytes not in (HALF_BYTES // 2, HALF_BYTES):
        raise BuildError(f"{tile.rows} rows of {tile.row_bytes} bytes are no operand of a product")
    return f"i{8 * tile.row_bytes}"
