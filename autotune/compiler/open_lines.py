"""Lines of the table of calls. In: a partition of open sizes, its kernels, and how its arena is
stacked. Out: where every argument of a call lies, as rows and distances from pointers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.codegen import backend_for
from autotune.codegen.base import PLACED, REPEATED, SKIPPED
from autotune.codegen.llvm.amounts import ALIGNED, Row
from autotune.codegen.llvm.backend import LlvmBackend
from autotune.compiler.constants import ConstantBlock, SharedConstants
from autotune.compiler.open_kernels import OpenKernel
from autotune.compiler.ports import input_bases, output_bases, outputs_of
from autotune.errors import VerifyError
from autotune.measure.executor import kernel_symbol
from autotune.placement.halo_clearing import halo_symbol
from autotune.placement.stacked_plan import ArenaBlock
from autotune.placement.types import KernelCall, Partition, Repeat, Storage
from autotune.program.ir import Pack, Program
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import (
    ArenaTable,
    CallTable,
    OpenPort,
    Unit,
    Words,
)
from autotune.sizes import ceil_div, is_size, least
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task, TensorType, dense_strides

Address = tuple[int, Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltKernel:
    """A kernel for all sizes with its code."""

    kernel: OpenKernel
    symbol: str
    code: bytes
    workspace_bytes: int
    text: str = ""
    """LLVM IR that its code is still to be made of."""


def written(
    task: Task, number: int, kernel: OpenKernel, target: Target, units: Sequence[Unit]
) -> BuiltKernel:
    """A kernel's code, or the text that it is made of, under a symbol of the task and its number.
    Raises BuildError, and whatever a defect does."""
    symbol = f"{kernel_symbol(task)}_{number}"
    program = of_units(kernel.program, tuple(unit.name for unit in units))
    backend = backend_for(target)
    if isinstance(backend, LlvmBackend):
        made, text = backend.written(program, target, symbol)
    else:
        made, text = backend.build(program, target, symbol), ""
    return BuiltKernel(
        kernel=kernel,
        symbol=symbol,
        code=made.code,
        workspace_bytes=made.workspace_bytes,
        text=text,
    )


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of the table."""

    driver: str
    args: tuple[Address, ...]
    strips: int = 1
    seconds: float = 0.0
    extents: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    workspace_bytes: int = 0


class OpenLinker:
    """Rows and addresses of a partition's values."""

    def __init__(
        self,
        partition: Partition,
        blocks: Sequence[ArenaBlock],
        constants: SharedConstants,
    ) -> None:
        self._partition, self._blocks = partition, blocks
        self._place = {name: n for n, b in enumerate(blocks) for name in b.storages}
        self._rows: dict[Row, int] = {}
        self.constants = ConstantBlock(constants)
        self._outputs = outputs_of(partition)
        self._bases = input_bases(partition) | output_bases(partition)
        self._sizes = FIRST_INPUT + len(partition.graph.inputs) + len(self._outputs)
        slots = [s.name for s in partition.storages.values() if s.kind == "slot"]
        self._bases |= {name: self._sizes + 1 + k for k, name in enumerate(slots)}

    def row(self, row: Row) -> int:
        """Its number."""
        return self._rows.setdefault(row, len(self._rows))

    def amounts(self, amounts: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.row(Row(amount)) for amount in amounts)

    def address(self, value: str) -> Address:
        """Base, and how far from it element (0, 0, ...) of an activation or graph value lies."""
        placement = self._partition.placements[value]
        storage = self._partition.storages[placement.storage]
        inside = placement.offset * ITEM_BYTES[storage.dtype]
        if storage.kind == "arena":
            return ARENA, Row(inside, self._place[storage.name])
        if storage.kind == "constant":
            array = self._partition.graph.constants[storage.name]
            return CONSTANTS, Row(self.constants.add(storage.name, array) + inside)
        if storage.name not in self._bases:
            raise VerifyError(f"{value} lies in {storage.name}, which is no input of the model")
        return self._bases[storage.name], Row(inside)

    def lines(self, call: KernelCall, kernels: Sequence[BuiltKernel]) -> list[TableLine]:
        """A line for every kernel that the call may use."""
        out = []
        for made in kernels:
            kernel = made.kernel
            args = self._arguments(call, kernel.program.packs)
            out.append(
                TableLine(
                    driver=f"{made.symbol}_run",
                    args=self._with_sizes(args, bool(kernel.program.symbols)),
                    strips=kernel.pieces,
                    seconds=kernel.seconds,
                    extents=kernel.extents,
                    lengths=kernel.lengths,
                    workspace_bytes=made.workspace_bytes,
                )
            )
        (output,) = call.task.by_role("output")
        if least(output.type.size) < 1:
            out.append(_nothing(output.type.size))
        return out

    def _arguments(self, call: KernelCall, packs: Sequence[Pack]) -> list[Address]:
        values, by_name = dict(call.args), {p.buffer: p for p in packs}
        out: list[Address] = []
        for param in call.task.params:
            value = values[param.name]
            if param.role == "constant":
                array = self._partition.graph.constants[value]
                offset = self.constants.add(value, array, by_name.get(param.name))
                out.append((CONSTANTS, Row(offset)))
            else:
                out.append(self.address(value))
        return out

    def _with_sizes(self, args: Sequence[Address], sized: bool) -> tuple[Address, ...]:
        sizes: tuple[Address, ...] = ((self._sizes, Row(0)),) if sized else ()
        return (*args, *sizes, (WORKSPACE, Row(0)))

    def begun(self, repeat: Repeat) -> TableLine:
        """The line that places the slots of repeated calls for the first trip."""
        pairs = []
        for slot in repeat.slots:
            kind = self._partition.graph.types[slot.value]
            base, row = self.address(slot.value)
            behind = Row(row.amount + slot.start * ITEM_BYTES[kind.dtype], row.block)
            pairs.append(((base, behind), slot.storage))
        return self._moved(pairs)

    def skipped(self, repeat: Repeat, lines: int) -> TableLine:
        """What goes on behind so many lines where there is no trip."""
        jump = ((ARENA, Row(repeat.trips)), (ARENA, Row(lines)))
        return TableLine(driver=SKIPPED, args=jump)

    def again(self, repeat: Repeat, lines: int, depth: int) -> list[TableLine]:
        """What moves the slots to the next trip, and what goes back by so many lines before that,
        for as many trips as there are. `depth`: of repeats that this one lies in."""
        pairs = []
        for slot in repeat.slots:
            item = ITEM_BYTES[self._partition.graph.types[slot.value].dtype]
            if slot.step or slot.follows:
                base = self._bases[slot.follows or slot.storage]
                pairs.append(((base, Row(slot.step * item)), slot.storage))
        jump = ((ARENA, Row(repeat.trips)), (ARENA, Row(lines + 1)), (ARENA, Row(depth)))
        return [self._moved(pairs), TableLine(driver=REPEATED, args=jump)]

    def _moved(self, pairs: Sequence[tuple[Address, str]]) -> TableLine:
        """Slots that point to addresses from now on."""
        args = [a for address, slot in pairs for a in (address, (self._bases[slot], Row(0)))]
        return TableLine(driver=PLACED, args=tuple(args))

    def halos(self, first: int, last: int) -> list[tuple[Storage, TableLine]]:
        """Storages whose first call this is, and that live up to the last one, each with the line
        that zeroes its halo."""
        return [
            (storage, self._halo_line(storage, number))
            for number, block in enumerate(self._blocks)
            if (storage := self._partition.storages[block.storages[0]]).zeroed
            and block.first == first
            and block.last >= last
        ]

    def _halo_line(self, storage: Storage, block: int) -> TableLine:
        args = self._with_sizes([(ARENA, Row(0, block))], is_size(storage.elements))
        return TableLine(f"{halo_symbol(storage)}_run", args)

    def table(self, calls: Sequence[Sequence[TableLine]]) -> CallTable:
        """`calls`: in order, the lines that each may take."""
        lines = [line for alternatives in calls for line in alternatives]
        width = 2 + 2 * max(len(line.args) for line in lines)
        words = np.zeros((len(lines), width), np.int64)
        filled: list[tuple[int, int]] = []
        for number, line in enumerate(lines):
            words[number, 1] = len(line.args)
            for place, (base, row) in enumerate(line.args):
                words[number, 2 + 2 * place] = base
                filled.append((number * width + 3 + 2 * place, self.row(row)))
        most = max(len(line.lengths) for line in lines)
        zero = self.row(Row(0))
        extents = [
            (*self.amounts(line.extents), *[zero] * (most - len(line.extents))) for line in lines
        ]
        return CallTable(
            drivers=tuple(line.driver for line in lines),
            words=words,
            filled=np.array(filled, np.int64).T.copy(),
            choices=_choices([len(alternatives) for alternatives in calls]),
            strips=np.array(self.amounts([line.strips for line in lines]), np.int64),
            seconds=np.array([line.seconds for line in lines]),
            workspace=np.array(self.amounts([line.workspace_bytes for line in lines]), np.int64),
            extents=np.array(extents, np.int64).reshape(len(lines), most),
            lengths=np.array(
                [(*line.lengths, *[0] * (most - len(line.lengths))) for line in lines], np.int64
            ).reshape(len(lines), most),
        )

    def arena(self, numbers: Sequence[int]) -> ArenaTable:
        """What lies in the arena, when all else has its rows. `numbers`: by line that is called,
        that of its call, or -1."""
        blocks = self._blocks
        sized = [
            (number, self.row(Row(ceil_div(nbytes, ALIGNED) * ALIGNED)))
            for number, block in enumerate(blocks)
            for nbytes in block.nbytes
        ]
        starts = [self.row(Row(0, number)) for number in range(len(blocks))]
        moved = [(n, row.block) for row, n in self._rows.items() if row.block is not None]
        return ArenaTable(
            first=np.array([block.first for block in blocks], np.int64),
            last=np.array([block.last for block in blocks], np.int64),
            starts=np.array(starts, np.int64),
            sized=np.array(sized, np.int64).reshape(-1, 2),
            moved=np.array(moved, np.int64).reshape(-1, 2),
            numbers=np.array(numbers, np.int64),
        )

    def port(self, public: str, value: str, kind: TensorType, place: Address) -> OpenPort:
        declared = dict(self._partition.graph.declared)
        strides = dense_strides(kind.shape)
        if place[0] < FIRST_INPUT or value in self._partition.placements:
            strides = self._partition.placements[value].layout.strides
        return OpenPort(
            name=public,
            dtype=kind.dtype,
            base=place[0],
            shape=self.amounts(kind.shape),
            strides=self.amounts(strides),
            offset=self.row(place[1]),
            declared=declared.get(public, ""),
        )

    def inputs(self) -> tuple[OpenPort, ...]:
        """Every model input in order."""
        return tuple(
            self.port(name, "", kind, (FIRST_INPUT + number, Row(0)))
            for number, (name, kind) in enumerate(self._partition.graph.inputs)
        )

    def outputs(self) -> tuple[OpenPort, ...]:
        graph = self._partition.graph
        return tuple(
            self.port(name, v, graph.types[v], self.address(v)) for name, v in graph.outputs
        )

    def output_bytes(self) -> tuple[int, ...]:
        return self.amounts([s.elements * ITEM_BYTES[s.dtype] for s in self._outputs])

    def rows(self) -> tuple[Row, ...]:
        """All of them, when everything else has been asked for."""
        return tuple(self._rows)


def _nothing(elements: int) -> TableLine:
    """The line of a call that makes no elements: it is taken where there are none, before any
    other one."""
    return TableLine(driver=PLACED, args=(), seconds=-1.0, extents=(-elements,), lengths=(0,))


def of_units(program: Program, names: tuple[str, ...]) -> Program:
    """The program with all units of the model as its sizes, if it has any."""
    return dataclasses.replace(program, symbols=names) if program.symbols else program


def _choices(counts: Sequence[int]) -> Words:
    """Numbers of lines by call, the last of a call again where it has few."""
    most, first, out = max(counts), 0, []
    for count in counts:
        out.append([first + min(n, count - 1) for n in range(most)])
        first += count
    return np.array(out, np.int64)
