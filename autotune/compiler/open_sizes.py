"""One program for all sizes of a model. In: the model with its symbols, the ranges of these, a
target. Out: an AnySizeProgram, or the reason why there is none.

The graph is imported, optimized and cut into tasks once, with symbols where sizes are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from autotune.compiler.bytes_that_pay import asked_at, bytes_that_pay
from autotune.compiler.open_building import built_kernels
from autotune.compiler.open_emission import Emission
from autotune.compiler.open_kernels import NoOpenKernelError
from autotune.compiler.open_lines import BuiltKernel
from autotune.compiler.open_link import PlannedPartition, open_link
from autotune.compiler.open_ranges import units_of
from autotune.compiler.open_samples import open_samples, sizes_of
from autotune.compiler.prepare import prepare
from autotune.compiler.strip_lengths import drawn_values, weight_bytes
from autotune.compiler.this_machine import runs_here
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT, described
from autotune.frontend.open_sizes import OpenModel
from autotune.graph.at_sizes import graph_at
from autotune.graph.feeds import Feeds, Samples
from autotune.graph.int8.quantize import Quantized
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.strips.open_rows import OpenRowStrips
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.placement.declared_halves import converts_halves
from autotune.placement.partition import partition
from autotune.placement.repeats import with_steps
from autotune.placement.stacked_plan import stacked
from autotune.placement.types import Partition
from autotune.runtime.open_image import OpenImage, PlanChoice, Unit
from autotune.runtime.open_model import AnySizeProgram
from autotune.size_ranges import OpenTypes, SizeRange
from autotune.sizes import greatest, symbol, symbols_of
from autotune.target import Target
from autotune.tasks.at_sizes import of_some
from autotune.types import Task

FEW = 4096
"""Elements that plain loops make in no time that matters."""
TRIED = 96
"""Sizes at which plans are compared."""
_LOGGER = logging.getLogger("autotune.compile")


def compile_open(
    model: OpenModel,
    ranges: Mapping[str, SizeRange],
    *,
    target: Target,
    versions: tuple[tuple[str, str], ...],
    profile: DeviceProfile | None = None,
    log: LogStore | None = None,
    calibration: Samples | None = None,
) -> AnySizeProgram:
    """One program for all sizes in these ranges, its schedules from the log where it knows some.
    `calibration`: samples for int8, of any sizes. Raises what its stages do where they need to
    know a size."""
    if target.kind != "cpu" and not target.is_source:
        raise NoOpenKernelError(f"targets of kind {target.kind} have no kernels for all sizes")
    opened = OpenParts.of(model, ranges, target, profile, log=log, calibration=calibration)
    image, notes = open_image(opened, versions=versions, log=log)
    program = AnySizeProgram(image, notes=(*opened.notes, *notes))
    if opened.quantized is not None:
        program.quantization = opened.quantized.judged(_runner(program, opened))
    return program


def _runner(program: AnySizeProgram, opened: OpenParts) -> Callable[[Feeds], Feeds]:
    """Runs samples, by numpy where the program is for another machine."""
    inputs, ranges = dict(opened.types.inputs), dict(opened.types.ranges)

    def run(feeds: Feeds) -> Feeds:
        sizes = sizes_of(inputs, ranges, feeds)
        if runs_here(program.image.target):
            return program.at(sizes).run(feeds)
        counts = {unit.name: unit.count(sizes[unit.name]) for unit in opened.units}
        return run_graph(graph_at(opened.graph, counts), feeds, "float32")

    return run


def open_image(
    opened: OpenParts,
    *,
    versions: tuple[tuple[str, str], ...],
    log: LogStore | None = None,
    strips: OpenRowStrips | None = None,
) -> tuple[OpenImage, tuple[str, ...]]:
    """The program of `compile_open` as data, not loaded, and what there is to say about it.
    `strips`: how layers are put in strips of rows."""
    start, target = time.perf_counter(), opened.machine.target
    parts, there, units = opened.parts, opened.sizes, opened.units
    planned = [PlannedPartition(parts=parts, blocks=stacked(parts, there))]
    choice: PlanChoice | None = None
    on_host = target.kind == "cpu" and not target.is_wasm  # others export the first plan alone
    with Emission(target, len(parts.weights())) as emission:
        building = _Building(opened, log, emission)
        written = building.written(parts)
        striped = None
        if on_host:
            striped = _in_strips(building, written, strips or OpenRowStrips())
        kernels = building.coded(written)
    if striped is not None:
        several, choice = striped
        planned += [PlannedPartition(parts=cut, blocks=stacked(cut, there)) for cut in several]
    image = open_link(
        planned, kernels, opened.types, units, choice, target=target, versions=versions
    )
    _LOGGER.info(
        "%s compiled for all sizes in %.1f s: %s calls, %d kernels",
        opened.graph.name, time.perf_counter() - start,
        " or ".join(str(len(each.parts.calls)) for each in planned),
        sum(map(len, kernels.values())),
    )  # fmt: skip
    return image, _plain_notes(parts, kernels)


Written = dict[Task, list[BuiltKernel]]


@dataclass(frozen=True, slots=True)
class _Building:
    """Kernels of the model's tasks."""

    opened: OpenParts
    log: LogStore | None
    emission: Emission
    begun: dict[Task, Future[list[BuiltKernel]]] = field(default_factory=dict)

    def written(
        self, parts: Partition, there: Mapping[Task, list[BuiltKernel]] | None = None
    ) -> Written:
        """The kernels of all tasks, those that are `there` as they are, whose code is begun.
        Raises NoOpenKernelError."""
        out = {}
        for task in parts.weights():
            out[task] = (there or {}).get(task) or self._built(task, coded=False)
            if task not in self.begun:
                self.begun[task] = self.emission.begin(out[task])
        return out

    def coded(self, kernels: Written) -> Written:
        """The kernels with their code. Raises NoOpenKernelError."""
        return {task: self._coded(task) for task in kernels}

    def _coded(self, task: Task) -> list[BuiltKernel]:
        try:
            return self.begun[task].result()
        except NO_DEFECT:
            raise
        except Exception as error:  # one after the other, those that can be built
            _LOGGER.info("%s: %s; it is built again", task.op, described(error))
            return self._built(task, coded=True)

    def _built(self, task: Task, *, coded: bool) -> list[BuiltKernel]:
        opened = self.opened
        machine, some = opened.machine_of(task), of_some(task)
        return built_kernels(some, machine, opened.sizes, opened.units, self.log, coded=coded)


def _in_strips(
    building: _Building, kernels: Written, strips: OpenRowStrips
) -> tuple[list[Partition], PlanChoice] | None:
    """The graph with layers in strips of rows, in ways that should each take less time somewhere,
    and where; `kernels` gets those of their tasks. None where none should, or some strip has no
    fast kernel."""
    opened = building.opened
    drawn = drawn_values(opened.symbols, TRIED)
    found = strips.run(opened.graph, drawn)
    if found is None:
        return None
    made = dict(kernels)
    try:
        several = [opened.cut(graph) for graph in found.graphs]
        for parts in several:
            made |= building.written(parts, made)
    except NO_DEFECT:
        raise
    except Exception as error:  # the plan without strips does for all sizes
        _LOGGER.info("%s: no plan in strips (%s)", opened.graph.name, described(error))
        return None
    slow = [task for task, ways in made.items() if all(m.kernel.plain for m in ways)]
    if any(task not in kernels for task in slow):
        return None
    kernels.update(made)
    counts = [[values[unit.name] for unit in opened.units] for values in drawn]
    return several, PlanChoice(counts=np.array(counts), plans=np.array(found.numbers, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenParts:
    """A model of open sizes, cut into tasks."""

    graph: Graph
    """Prepared."""
    parts: Partition
    units: tuple[Unit, ...]
    symbols: tuple[int, ...]
    """Counts of the units, which only a run knows."""
    sizes: Mapping[str, int]
    """Representative counts of the units."""
    types: OpenTypes
    machine: Machine
    far: Machine
    """The same for tasks whose weights come from where the model's all lie."""
    quantized: Quantized | None = None
    """Where int8 was asked for."""
    notes: tuple[str, ...] = ()
    """Lines for people about how it was prepared."""

    @staticmethod
    def of(
        model: OpenModel,
        ranges: Mapping[str, SizeRange],
        target: Target,
        profile: DeviceProfile | None,
        *,
        log: LogStore | None = None,
        calibration: Samples | None = None,
    ) -> OpenParts:
        """`log`: its times choose what bytes leave in float32; `calibration`: samples for int8."""
        units, sizes = units_of(ranges)
        loaded = model.open_graph(sizes)
        on_bytes = target.precision == "int8"
        middle = {unit.name: unit.count(ranges[unit.name].middle) for unit in units}
        pays = bytes_that_pay(target, lambda: profile, log)
        ready = prepare(
            loaded, target.precision,
            open_samples(model.inputs, ranges, units, calibration) if on_bytes else None,
            short=target.short_tensors, halves=converts_halves(target),
            pays=pays and asked_at(pays, middle),
        )  # fmt: skip
        graph = ready.graph
        parts = _cut(graph, target)
        machine = Machine.of(target, profile)
        weights = sum(array.nbytes for array in parts.graph.constants.values())
        counted = (s for size in sizes.values() for s in symbols_of(size))
        return OpenParts(
            graph=graph,
            parts=parts,
            units=units,
            symbols=tuple(symbol(s.name, s.low, s.high) for s in counted),
            sizes=middle,
            types=OpenTypes(
                inputs=tuple(model.inputs.items()),
                outputs=tuple(model.outputs.items()),
                ranges=tuple(ranges.items()),
            ),
            quantized=ready.quantized,
            notes=ready.notes,
            machine=machine,
            far=machine.among(float(max(1, weights))),
        )

    def cut(self, graph: Graph) -> Partition:
        """Another form of the graph, cut into tasks."""
        return _cut(graph, self.machine.target)

    def machine_of(self, task: Task) -> Machine:
        return self.far if weight_bytes(task) > self.machine.cache_bytes(2) else self.machine


def _cut(graph: Graph, target: Target) -> Partition:
    """The graph as calls, those of a sequence's steps among them, which int8 leaves in float32."""
    precision = "float32" if target.precision == "int8" else target.precision

    def prepared(step: Graph) -> Graph:
        return prepare(step, precision, short=target.short_tensors).graph

    return with_steps(partition(graph), prepared)


def _plain_notes(
    parts: Partition, kernels: Mapping[Task, Sequence[BuiltKernel]]
) -> tuple[str, ...]:
    """A line for every task that no schedule speeds up at all sizes, by its first call; none for
    those that never make many elements."""
    names = {call.task: call.name for call in reversed(parts.calls)}
    return tuple(
        f"{task.op} of {names[task]!r} runs in plain loops: none of its schedules serves all sizes"
        for task, several in kernels.items()
        if all(made.kernel.plain for made in several) and _made(task) > FEW
    )


def _made(task: Task) -> int:
    """Elements of the output, at most."""
    (output,) = task.by_role("output")
    return greatest(output.type.size)
