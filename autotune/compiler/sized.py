"""Models of open sizes: one program for all of them, or each set of sizes compiled for itself. In:
a model with its symbols, and how its graph is compiled. Out: a SizedModel.

Sizes share what does not depend on them: kernels of equal tasks and schedules, and packed weights.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.compiler.build import Kernels
from autotune.compiler.constants import NoRoomError, SharedConstants
from autotune.compiler.further_programs import FurtherPrograms
from autotune.compiler.growing import GrowingModels
from autotune.compiler.open_ranges import covered, ranges_of
from autotune.compiler.open_samples import check_open_samples
from autotune.defects import NO_DEFECT, described
from autotune.errors import ConfigError, ControlFlowError, FeedError, ModelError
from autotune.frontend.open_sizes import OpenModel
from autotune.frontend.symbolic import SymbolicModel
from autotune.graph.ir import Graph
from autotune.measure.types import Built
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.runtime.open_model import AnySizeProgram
from autotune.runtime.sized import SizedModel
from autotune.runtime.specialized import Specialized
from autotune.schedule.base import Schedule
from autotune.size_ranges import SizeRange
from autotune.types import Task

_LOGGER = logging.getLogger("autotune.compile")
RESERVED_WEIGHTS = 4
"""Room for packed weights, in multiples of the weights: other sizes may want other packings. When
it is full, a new block begins, and the old one goes with the last of the sizes that read it."""
RESERVED_BYTES = 64 << 20
"""Room beside it, for what is computed from weights or sizes. What is not used takes no memory."""

Kernel = tuple[Task, Schedule]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReuse:
    """Kernels and packed weights that compiles of one model for several sizes share."""

    constants: SharedConstants
    there: tuple[Mapping[Kernel, Built], ...] = ()
    """Kernels of other sizes."""
    own: dict[Kernel, Built] = field(default_factory=dict)
    """Those of this compile, when it has built them."""

    def known(self, task: Task, schedule: Schedule) -> Built | None:
        """A kernel of other sizes."""
        return next((k[task, schedule] for k in self.there if (task, schedule) in k), None)

    def keep(self, kernels: Kernels) -> None:
        chosen = kernels.chosen
        self.own.update({(t, chosen[t].schedule): b for t, b in kernels.built.items()})


class CompileGraph(Protocol):
    """Compiles a graph for the target, log and machine that were asked for."""

    def __call__(self, graph: Graph, reuse: KernelReuse | None = None) -> CompiledModel: ...


class OpenProgram(Protocol):
    """Compiles a model for all sizes in ranges at once. Raises anything where it cannot."""

    def __call__(self, model: OpenModel, ranges: Mapping[str, SizeRange]) -> AnySizeProgram: ...


class Specializer:
    """Compiles a model for a set of sizes; calls take turns."""

    def __init__(self, model: OpenModel, compile_graph: CompileGraph) -> None:
        self._model, self._compile = model, compile_graph
        self._reserved = RESERVED_WEIGHTS * model.weight_bytes + RESERVED_BYTES
        self._constants = SharedConstants(self._reserved)
        self._filled: list[Mapping[Kernel, Built]] = []
        """Kernels for states of other capacities."""

    def __call__(self, sizes: Mapping[str, int], kept: Iterable[Specialized]) -> Specialized:
        """`kept`: other sizes, whose kernels may do for these."""
        start, graph = time.perf_counter(), self._model.graph(sizes)
        there = tuple(each.parts for each in kept)
        try:
            done = self._compiled(graph, there)
        except NoRoomError:  # sizes that are there keep the old block as long as they need it
            self._constants = SharedConstants(max(self._reserved, 2 * self._constants.used_bytes))
            done = self._compiled(graph, there)
        new = sum(all(kernel not in kernels for kernels in there) for kernel in done.parts)
        _LOGGER.info(
            "%s compiled for %s in %.1f s, %d of its %d kernels new",
            self._model.name, ", ".join(f"{k}={v}" for k, v in sizes.items()),
            time.perf_counter() - start, new, len(done.parts),
        )  # fmt: skip
        return done

    def filled(self, graph: Graph) -> CompiledModel:
        """A graph of the model for states of a capacity; its weights are shared with others."""
        there = tuple(self._filled)
        try:
            done = self._compiled(graph, there)
        except NoRoomError:
            self._constants = SharedConstants(max(self._reserved, 2 * self._constants.used_bytes))
            done = self._compiled(graph, there)
        self._filled.append(done.parts)
        return done.model

    def _compiled(self, graph: Graph, there: tuple[Mapping[Kernel, Built], ...]) -> Specialized:
        reuse = KernelReuse(constants=self._constants, there=there)
        model = self._compile(graph, reuse)
        image = model.image
        nbytes = image.arena_bytes + image.workspace_bytes + sum(map(len, image.objects))
        return Specialized(model=model, nbytes=nbytes, parts=reuse.own)


def sized_model(
    model: OpenModel,
    request: CompileRequest,
    compile_graph: CompileGraph,
    open_program: OpenProgram,
) -> SizedModel:
    """The model for any sizes in the request's ranges, or else its own: one program for as many of
    them as it can be for, if every task has a kernel for those. `compile_graph` is for sizes by
    themselves, in float32 where the program is in int8. Raises ConfigError for ranges of symbols
    that it does not have, and for int8 without one program, FeedError of samples for it, and
    ControlFlowError where a run had better loop by itself."""
    ranges = ranges_of(model, request.ranges)
    on_bytes = request.wanted_target().precision == "int8"
    if on_bytes:
        check_open_samples(model.inputs, ranges, request.calibration)
    elif request.calibration is not None:
        raise ConfigError("samples for calibration are for precision int8; leave them out")
    program, why = _one_program(model, ranges, open_program)
    if on_bytes and program is None:
        raise ConfigError(
            f"int8 of open sizes takes one program for all of them, and {model.name} has none "
            f"({why}); fix {', '.join(model.symbols)} with --shape"
        )
    specializer = Specializer(model, compile_graph)

    def grows(state: Mapping[str, str]) -> GrowingModels:
        if not isinstance(model, SymbolicModel):
            raise FeedError("state: it grows, which ONNX models can; give it a fixed size")
        return GrowingModels(model, state, specializer.filled)

    made = SizedModel(
        model.name,
        inputs=model.inputs,
        outputs=model.outputs,
        ranges=ranges,
        specialize=specializer,
        program=program,
        why=why,
    )
    made.grows = grows
    if program is not None and not on_bytes:
        within = dict(program.image.types.ranges)
        made.further = FurtherPrograms(
            model, ranges, within, lambda some: open_program(model, some)
        )
    if program is not None and on_bytes and dict(program.image.types.ranges) != ranges:
        made.notes += ("what is compiled for sizes by themselves is in float32",)
    for note in made.notes:
        _LOGGER.info(note)
    return made


def _check_at_sizes(model: OpenModel, ranges: Mapping[str, SizeRange]) -> None:
    """Raises what is wrong with the model at any sizes, if it is; else an importer must know a
    size, or sizes must agree, as one does that counts what two others do."""
    said = []
    for apart in (0, 1):
        sizes = {
            symbol: min(allowed.middle + apart * number * allowed.step, allowed.most)
            for number, (symbol, allowed) in enumerate(ranges.items(), 1)
        }
        try:
            model.graph(sizes)
        except ModelError as error:
            said.append(str(error))
            if said[1:] == said[:1]:
                raise


def _one_program(
    model: OpenModel, ranges: Mapping[str, SizeRange], open_program: OpenProgram
) -> tuple[AnySizeProgram | None, str]:
    """The program, or why there is none: something must know a size. Raises what leaves a loop
    whose trips a size counts to the run."""
    try:
        return covered(model, ranges, lambda some: open_program(model, some)), ""
    except ControlFlowError:
        raise
    except ModelError as error:
        _check_at_sizes(model, ranges)
        return None, described(error)
    except NO_DEFECT:
        raise
    except Exception as error:  # each set of sizes can be compiled for itself
        return None, described(error)
