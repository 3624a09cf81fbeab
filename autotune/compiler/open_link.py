"""Kernels for all sizes into one model. In: a partition of open sizes, kernels of its tasks, and
how its arena is stacked. Out: an OpenImage.

As `link` does for fixed sizes, with expressions where that has numbers: each becomes a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.codegen.c.amount import amounts_lines
from autotune.codegen.llvm.amounts import Row, StackedBlock, amounts_text
from autotune.codegen.llvm.arrangement import arrangement_text, nearest_text
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.llvm.table import table_text
from autotune.compiler.constants import SharedConstants, aligned, packed_bytes
from autotune.compiler.open_calls import CallLines
from autotune.compiler.open_lines import BuiltKernel, OpenLinker
from autotune.placement.stacked_plan import ArenaBlock
from autotune.placement.types import Partition
from autotune.runtime.open_image import (
    AMOUNTS,
    ARRANGEMENT,
    NEAREST,
    TABLE,
    CallTable,
    OpenImage,
    OpenPlan,
    PlanChoice,
    Unit,
)
from autotune.size_ranges import OpenTypes
from autotune.target import Target
from autotune.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition, and how its arena is stacked."""

    parts: Partition
    blocks: Sequence[ArenaBlock]


def open_link(
    planned: Sequence[PlannedPartition],
    kernels: Mapping[Task, Sequence[BuiltKernel]],
    types: OpenTypes,
    units: Sequence[Unit],
    choice: PlanChoice | None = None,
    *,
    target: Target,
    versions: tuple[tuple[str, str], ...],
) -> OpenImage:
    """The model as data, its native functions built. `planned`: one that does for all sizes, then
    others, of which `choice` tells where they run."""
    constants = SharedConstants(sum(_constant_bytes(each.parts, kernels) for each in planned))
    there: dict[str, bytes] = {}
    names = tuple(unit.name for unit in units)
    linked = []
    for number, each in enumerate(planned):
        linker = OpenLinker(each.parts, each.blocks, constants)
        made = CallLines(linker, each.parts, kernels, names, target)
        made.run()
        objects = made.objects
        amounts = f"{AMOUNTS}_{number}" if number else AMOUNTS
        plan, native = _plan(linker, each, made, amounts, names)
        objects[amounts] = _native(native, plan.table, target, calls=not number)
        new = {symbol: code for symbol, code in objects.items() if symbol not in there}
        linked.append(dataclasses.replace(plan, objects=len(new)))
        there |= new
    own, further = linked[0], linked[1:]
    return OpenImage(
        name=planned[0].parts.graph.name,
        target=target,
        types=types,
        units=tuple(units),
        rows=own.rows,
        inputs=own.inputs,
        outputs=own.outputs,
        output_bytes=own.output_bytes,
        table=own.table,
        arena=own.arena,
        versions=versions,
        objects=tuple(there.values()),
        constants=constants.block(),
        further=tuple(further),
        choice=choice,
    )


@dataclass(frozen=True, slots=True)
class _RowsOfPlan:
    """Parts of the function that works out a plan's rows."""

    symbol: str
    names: tuple[str, ...]
    stacks: Sequence[StackedBlock]
    rows: Sequence[Row]


def _plan(
    linker: OpenLinker,
    planned: PlannedPartition,
    calls: CallLines,
    amounts: str,
    names: tuple[str, ...],
) -> tuple[OpenPlan, _RowsOfPlan]:
    """The plan, and what works out its rows."""
    table = linker.table(calls.lines)
    inputs, outputs, output_bytes = linker.inputs(), linker.outputs(), linker.output_bytes()
    arena = linker.arena(calls.numbers)
    rows = linker.rows()
    stacks = [StackedBlock(nbytes=block.nbytes, below=block.below) for block in planned.blocks]
    plan = OpenPlan(
        amounts=amounts,
        rows=len(rows),
        inputs=inputs,
        outputs=outputs,
        output_bytes=output_bytes,
        table=table,
        arena=arena,
        objects=0,
    )
    return plan, _RowsOfPlan(amounts, names, stacks, rows)


def _native(native: _RowsOfPlan, table: CallTable, target: Target, *, calls: bool) -> bytes:
    """The functions of a plan that work out its rows and, if `calls`, make calls: object code; of
    C the text of the first, since its calls are written when a model is."""
    names, stacks, rows = native.names, native.stacks, native.rows
    if target.is_source:
        return "\n".join(amounts_lines(names, stacks, rows)).encode()
    text = amounts_text(native.symbol, names, stacks, rows)
    return compile_text(text + _calls_text(table, target) if calls else text, target)


def _calls_text(table: CallTable, target: Target) -> str:
    """The functions that choose and make the calls; WebAssembly's code has numbers for addresses,
    and chooses as it is exported."""
    if not target.is_wasm:
        return table_text(TABLE) + arrangement_text(ARRANGEMENT) + nearest_text(NEAREST)
    declared = [f"declare void @{name}(ptr, i64)\n" for name in table.kernels]
    return "".join(declared) + table_text(TABLE, tuple(table.numbered))


def _constant_bytes(partition: Partition, kernels: Mapping[Task, Sequence[BuiltKernel]]) -> int:
    """Room for all constants in all layouts; what is equal takes less."""
    graph = partition.graph.constants
    total = sum(aligned(array.nbytes) for array in graph.values())
    for call in partition.calls:
        values = dict(call.args)
        for made in kernels[call.task]:
            packs = made.kernel.program.packs
            total += sum(aligned(packed_bytes(graph[values[p.buffer]], p)) for p in packs)
    return total
