"""Kernels into one model. In: a Partition, its kernels and memory plan. Out: a ModelImage.

Constants are packed as each kernel wants them, stored once per content, and laid out in one block.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen import backend_for
from autotune.codegen.base import EntryCall
from autotune.compiler.build import Kernels
from autotune.compiler.constants import ConstantBlock, SharedConstants, aligned, packed_bytes
from autotune.compiler.ports import input_bases, output_bases, outputs_of
from autotune.compiler.work import work_of
from autotune.errors import VerifyError
from autotune.placement.halo_clearing import halo_program, halo_symbol
from autotune.placement.memory_plan import MemoryPlan, plan_memory
from autotune.placement.types import Partition
from autotune.placement.updates import updatable
from autotune.program.ir import Pack
from autotune.runtime.image import (
    ARENA,
    CONSTANTS,
    ENTRY_SYMBOL,
    FIRST_INPUT,
    WORKSPACE,
    LinkedKernel,
    ModelImage,
    Port,
)
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, dense_strides

Address = tuple[int, int]


class Linker:
    """Addresses of a partition's values, given where the arena plan puts them."""

    def __init__(self, partition: Partition, plan: MemoryPlan, shared: SharedConstants) -> None:
        self._partition = partition
        self._plan = plan
        self.constants = ConstantBlock(shared)
        self._inputs, self._outputs = input_bases(partition), output_bases(partition)
        outputs = outputs_of(partition)
        self.output_bytes = tuple(s.elements * ITEM_BYTES[s.dtype] for s in outputs)

    def address(self, value: str) -> Address:
        """Base and byte offset of element (0, 0, ...) of an activation or graph value."""
        placement = self._partition.placements[value]
        storage = self._partition.storages[placement.storage]
        inside = placement.offset * ITEM_BYTES[storage.dtype]
        if storage.kind == "arena":
            return ARENA, self._plan.offsets[storage.name] + inside
        if storage.kind == "constant":
            array = self._partition.graph.constants[storage.name]
            return CONSTANTS, self.constants.add(storage.name, array) + inside
        bases = self._inputs if storage.kind == "input" else self._outputs
        if storage.name not in bases:
            raise VerifyError(f"{value} lies in {storage.name}, which is no input of the model")
        return bases[storage.name], inside

    def arguments(self, number: int, packs: Sequence[Pack]) -> tuple[Address, ...]:
        """Addresses of a call's parameters, the workspace last."""
        call = self._partition.calls[number]
        values = dict(call.args)
        by_name = {p.buffer: p for p in packs}
        out: list[Address] = []
        for param in call.task.params:
            value = values[param.name]
            if param.role == "constant":
                array = self._partition.graph.constants[value]
                offset = self.constants.add(value, array, by_name.get(param.name))
                out.append((CONSTANTS, offset))
            else:
                out.append(self.address(value))
        inside = self._plan.workspaces.get(number)
        return (*out, (WORKSPACE, 0) if inside is None else (ARENA, inside))

    def calls(self, kernels: Sequence[LinkedKernel]) -> list[EntryCall]:
        """The kernels, each behind the halos that must be zeroed first."""
        out = []
        for number, kernel in enumerate(kernels):
            for name in (name for at, name in self._plan.cleared if at == number):
                symbol = halo_symbol(self._partition.storages[name])
                args = ((ARENA, self._plan.offsets[name]), (WORKSPACE, 0))
                out.append(EntryCall(symbol=symbol, args=args))
            out.append(EntryCall(symbol=kernel.symbol, args=kernel.args))
        return out

    def halos(self, target: Target) -> tuple[bytes, ...]:
        """Object code of what zeroes halos, each once."""
        cleared = (self._partition.storages[name] for _, name in self._plan.cleared)
        unique = {halo_symbol(storage): storage for storage in cleared}
        backend = backend_for(target)
        programs = {name: halo_program(storage, target) for name, storage in unique.items()}
        return tuple(backend.build(p, target, name).code for name, p in programs.items())

    def port(self, public: str, value: str) -> Port:
        base, offset = self.address(value)
        layout = self._partition.placements[value].layout
        kind, declared = self._partition.graph.types[value], dict(self._partition.graph.declared)
        return Port(
            name=public,
            type=kind,
            base=base,
            offset_bytes=offset,
            strides=layout.strides,
            declared=declared.get(public, ""),
        )

    def inputs(self) -> tuple[Port, ...]:
        """Every model input in order; one that no kernel reads may have no placement."""
        return tuple(
            Port(
                name=name,
                type=kind,
                base=FIRST_INPUT + number,
                offset_bytes=0,
                strides=dense_strides(kind.shape),
                declared=dict(self._partition.graph.declared).get(name, ""),
            )
            for number, (name, kind) in enumerate(self._partition.graph.inputs)
        )


def link(
    partition: Partition,
    plan: MemoryPlan,
    kernels: Kernels,
    target: Target,
    versions: tuple[tuple[str, str], ...],
    *,
    shared: SharedConstants | None = None,
) -> ModelImage:
    """The model as data, its entry function built. `shared`: where its constants go, instead of
    into a block of their own."""
    linker = Linker(
        partition, plan, shared or SharedConstants(_constant_bytes(partition, kernels))
    )
    flops = {task: task_flops(task) for task in kernels.built}
    work = {t: work_of(t, kernels.chosen[t].schedule, b.packs) for t, b in kernels.built.items()}
    rows = []
    for number, call in enumerate(partition.calls):
        built = kernels.built[call.task]
        rows.append(
            LinkedKernel(
                name=call.name,
                symbol=built.symbol,
                task_key=call.task.key,
                op=call.task.op,
                flops=flops[call.task],
                source=kernels.chosen[call.task].source,
                args=linker.arguments(number, built.packs),
                algorithm=work[call.task].algorithm,
                work_flops=work[call.task].flops,
                input_bytes=work[call.task].input_bytes,
                weight_bytes=work[call.task].weight_bytes,
                output_bytes=work[call.task].output_bytes,
            )
        )
    calls, halos = linker.calls(rows), linker.halos(target)
    entry = backend_for(target).build_entry(calls, target, ENTRY_SYMBOL)
    return ModelImage(
        name=partition.graph.name,
        target=target,
        inputs=linker.inputs(),
        outputs=tuple(linker.port(public, v) for public, v in partition.graph.outputs),
        output_bytes=linker.output_bytes,
        kernels=tuple(rows),
        arena_bytes=plan.arena_bytes,
        workspace_bytes=0 if plan.workspaces else _most_workspace(kernels),
        versions=versions,
        objects=(*(b.code for b in kernels.built.values()), *halos, entry),
        constants=linker.constants.block(),
        updates=updatable(partition),
    )


def with_workspaces(partition: Partition, plan: MemoryPlan, kernels: Kernels) -> MemoryPlan:
    """The plan with what kernels work in inside the arena, for the time of each call; as it is
    where that gains nothing. Other halos lend their memory in it."""
    found = {n: kernels.built[call.task].workspace_bytes for n, call in enumerate(partition.calls)}
    wanted = {number: nbytes for number, nbytes in found.items() if nbytes}
    if not wanted:
        return plan
    inside = plan_memory(partition, lend=True, workspaces=wanted)
    apart = plan.arena_bytes + max(wanted.values())
    return inside if inside.arena_bytes <= apart else plan


def _most_workspace(kernels: Kernels) -> int:
    return max((built.workspace_bytes for built in kernels.built.values()), default=0)


def _constant_bytes(partition: Partition, kernels: Kernels) -> int:
    """Bytes of the model's constants, at most: each as its kernels want it."""
    arrays = partition.graph.constants
    wanted: set[tuple[str, Pack | None]] = {
        (s.name, None) for s in partition.storages.values() if s.kind == "constant"
    }
    for call in partition.calls:
        packs, values = {p.buffer: p for p in kernels.built[call.task].packs}, dict(call.args)
        names = (p.name for p in call.task.params if p.role == "constant")
        wanted |= {(values[name], packs.get(name)) for name in names}
    return sum(aligned(packed_bytes(arrays[name], pack)) for name, pack in wanted)
