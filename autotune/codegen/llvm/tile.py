"""Products of matrix tiles as LLVM IR: Intel AMX's instructions.

In: memory for sums whose reduction ends in `tile` loops. Out: instructions that keep the sums in
tile registers while they grow; before the reduction these are loaded, or zeroed where that is all
that a nest before it does, afterwards stored. Registers have fixed numbers and shapes
(`tile_plan`): LLVM's allocator has no part in it. A thread's registers are given their shapes when
its kernel begins, and those of a ragged edge only where they are needed; its end releases them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.codegen.elf.symbols import TILE_SHAPES
from autotune.codegen.llvm.index import Lane
from autotune.codegen.llvm.matrix import MatrixWriter
from autotune.codegen.llvm.text import FunctionText, Lines
from autotune.codegen.llvm.tile_plan import (
    MatrixTile,
    TilePlan,
    is_tiled,
    plan_of,
    product_of,
    without_zeros,
)
from autotune.errors import BuildError
from autotune.program.ir import For, Stmt
from autotune.program.rewrite import stores_of

_PRODUCTS = {
    ("bfloat16", "bfloat16", "float32"): ("tdpbf16ps", "+amx-bf16"),
    ("uint8", "int8", "int32"): ("tdpbusd", "+amx-int8"),
    ("int8", "int8", "int32"): ("tdpbssd", "+amx-int8"),
}
"""Types of data, weights and sums -> instruction, and the feature that has it."""
_PARAMETERS = {
    "ldtilecfg": "ptr", "tilerelease": "", "tilezero": "i8", "tileloadd64": "i8, ptr, i64",
    "tilestored64": "i8, ptr, i64", "tdpbf16ps": "i8, i8, i8", "tdpbusd": "i8, i8, i8",
    "tdpbssd": "i8, i8, i8",
}  # fmt: skip


class TileWriter(MatrixWriter):
    """Writes products of matrix tiles."""

    symbol: str

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self._plan: TilePlan | None = None
        self._loaded: set[int] = set()
        """Registers of operands that are loaded, in this iteration."""
        self._shapes: list[bytes] = []
        """Configurations; threads begin with the first."""
        self._first: Lines = []
        self.text.scope.lines.append(self._first)

    def tiled_body(self, body: Sequence[Stmt]) -> None:
        """What is in memory for sums: nests that set them, add to them, use them."""
        if self.multiplies_matrices:
            self.matrix_body(body)
            return
        env = {v: i for v, i in self.env.items() if isinstance(i, int)}
        plan = plan_of([s for s in body if is_tiled(s)], self.buffers, env)
        sums = {t: n for t, n in plan.numbers.items() if self._is_sum(t, body)}
        shape = self._configured(plan)
        if shape:
            self._call("ldtilecfg", f"ptr @{self._name(shape)}")
        body, zeroed = without_zeros(body, {t.buffer for t in sums})
        for stmt in body:
            if not is_tiled(stmt):
                self.stmt(stmt)
                continue
            self._move("tilezero" if zeroed else "tileloadd64", sums)
            self.begin_iteration()
            self._plan = plan
            self.stmt(stmt)
            self._plan = None
            self._move("tilestored64", sums)
        if shape:
            self._call("ldtilecfg", f"ptr @{self._name(0)}")

    def begin_iteration(self) -> None:
        """Operands of another iteration are others."""
        super().begin_iteration()
        self._loaded.clear()

    def tile_product(self, loop: For) -> None:
        """One product, with what operands it needs."""
        if self.multiplies_matrices:
            self.matrix_product(loop)
            return
        assert self._plan is not None
        env = {v: i for v, i in self.env.items() if isinstance(i, int)}
        product = product_of(loop, self.buffers, env)
        if product is None:
            return
        numbers = self._plan.numbers
        data, weights, sums = (
            self.buffers[t.buffer].dtype for t in (product.data, product.weights, product.sums)
        )
        name, feature = _PRODUCTS.get((data, weights, sums), ("", ""))
        if feature not in self.features:
            raise BuildError(f"no matrix tiles of {data} and {weights} on this target")
        for tile in (product.data, product.weights):
            if numbers[tile] not in self._loaded:
                self._loaded.add(numbers[tile])
                self._move("tileloadd64", {tile: numbers[tile]})
        given = [f"i8 {numbers[t]}" for t in (product.sums, product.data, product.weights)]
        self._call(name, ", ".join(given))

    def end_tiles(self) -> None:
        """Before the function returns."""
        if not self._shapes:
            return
        for number, shape in enumerate(self._shapes):
            text = "".join(f"\\{byte:02x}" for byte in shape)
            name = self._name(number)
            self.text.declare(
                name, f'@{name} = internal constant [{len(shape)} x i8] c"{text}", align 64'
            )
        self._first.append(f"  call void @llvm.x86.ldtilecfg(ptr @{self._name(0)})")
        self._call("tilerelease", "")

    def _is_sum(self, tile: MatrixTile, body: Sequence[Stmt]) -> bool:
        return any(stores_of(tuple(body), tile.buffer))

    def _configured(self, plan: TilePlan) -> int:
        """The number of a plan's configuration."""
        self._declare("ldtilecfg")
        shape = plan.configuration()
        if shape not in self._shapes:
            self._shapes.append(shape)
        return self._shapes.index(shape)

    def _name(self, number: int) -> str:
        return f"{TILE_SHAPES}.{self.symbol}.{number}"

    def _move(self, name: str, tiles: Mapping[MatrixTile, int]) -> None:
        """The same instruction for several registers."""
        for tile, number in tiles.items():
            if name == "tilezero":
                self._call(name, f"i8 {number}")
                continue
            buffer = self.buffers[tile.buffer]
            if any(isinstance(self.env.get(v), Lane) for v in tile.offset.vars()):
                raise BuildError("a product of matrix tiles is inside of a vector loop")
            pointer = self.address(buffer, self.linear(tile.offset))
            self._call(name, f"i8 {number}, ptr {pointer}, i64 {tile.pitch}")

    def _call(self, name: str, given: str) -> None:
        self._declare(name)
        self.text.line(f"call void @llvm.x86.{name}({given})")

    def _declare(self, name: str) -> None:
        self.text.declare(
            f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({_PARAMETERS[name]})"
        )
