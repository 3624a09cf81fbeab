"""The whole compilation. In: a CompileRequest. Out: a CompiledModel."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from autotune.compiler.build import Defaults, Kernels, Known, build_kernels
from autotune.compiler.bytes_that_pay import bytes_that_pay
from autotune.compiler.layout_costs import arranged
from autotune.compiler.link import link, with_workspaces
from autotune.compiler.open_sizes import compile_open
from autotune.compiler.precision import kept_float32
from autotune.compiler.prepare import Prepared, check_samples, prepare
from autotune.compiler.rewriting import rewriting
from autotune.compiler.sized import KernelReuse, OpenProgram, sized_model
from autotune.compiler.small import HARDLY, small_choices
from autotune.compiler.this_machine import runs_here, this_machine
from autotune.compiler.together import chosen_together
from autotune.db.types import LogStore
from autotune.frontend import load_model, open_model
from autotune.frontend.open_sizes import OpenModel
from autotune.graph import memory_limit as room
from autotune.graph.feeds import Feeds, Samples
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.machine.profile import DeviceProfile
from autotune.memory import drop_pages, physical_bytes
from autotune.placement.declared_halves import converts_halves
from autotune.placement.memory_plan import plan_memory
from autotune.placement.types import Partition
from autotune.placement.unaligned import unaligned_params
from autotune.release import release
from autotune.request import NOMINAL, CompileRequest, taking
from autotune.runtime.image import ModelImage
from autotune.runtime.model import CompiledModel
from autotune.runtime.open_model import AnySizeProgram
from autotune.runtime.sized import SizedModel
from autotune.schedule.base import schedule_to_json
from autotune.size_ranges import SizeRange, size_ranges
from autotune.target import Target

_LOGGER = logging.getLogger("autotune.compile")
_LOGGER.addHandler(logging.NullHandler())


@taking(CompileRequest)
def partition(request: CompileRequest) -> Partition:
    """The kernel calls of the model as `autotune.compile` makes them: its `weights()` are the
    unique tasks and how often each is called."""
    target = request.wanted_target()
    with open_log(request.log) as store:
        return partition_with(request, target, store)


def partition_with(request: CompileRequest, target: Target, log: LogStore | None) -> Partition:
    """See `partition`; for the request's target, with its log open."""
    return arranged(load_prepared(request, target, log=log).graph, target, log)


def load_checked(request: CompileRequest, *, fits: bool) -> Graph:
    """The request's graph as it is in its file. `fits`: it is run on this machine. Raises
    ModelError where it does not fit into its memory."""
    return checked_graph(load_model(request.model, request.shapes), request, fits=fits)


def checked_graph(graph: Graph, request: CompileRequest, *, fits: bool) -> Graph:
    """A graph of fixed sizes, as `load_checked` gives it."""
    size_ranges(request.ranges, ())
    if fits:
        room.check_model(graph, physical_bytes())
    return graph


def load_prepared(
    request: CompileRequest, target: Target, *, log: LogStore | None = None
) -> Prepared:
    """The request's graph, prepared for its target, before layouts are chosen."""
    return prepared(load_checked(request, fits=False), request, target, log)


def check_preparing(graph: Graph, request: CompileRequest, target: Target) -> None:
    """Raises what `prepared` raises of a request's files, before anything is opened or made."""
    check_samples(graph, target.precision, request.calibration)
    rewriting(target, request.rewrites)  # a file is read and proven


def prepared(
    graph: Graph, request: CompileRequest, target: Target, log: LogStore | None
) -> Prepared:
    """A loaded graph, prepared as its request says. `log`: its times choose rewrites."""
    return prepare(
        graph, target.precision, request.calibration,
        short=target.short_tensors, halves=converts_halves(target),
        rewrite=rewriting(target, request.rewrites, log, request.rewrite_time),
        pays=bytes_that_pay(target, lambda: profile_for(request, target), log),
    )  # fmt: skip


def compile_request(
    request: CompileRequest,
    *,
    small: bool | None = False,
    whole: bool = True,
    reuse: KernelReuse | None = None,
) -> CompiledModel | SizedModel:
    """See `autotune.compile`. `small`: weights in no more room than they have in the model (None:
    where that costs hardly any time); `whole`: control flow too has to become a part of the one
    native call; `reuse`: what other models of the same weights have, of models of fixed sizes."""
    request.wanted_target()  # a wrong one is told before the model is read
    opened = open_model(request.model, request.shapes, whole=whole)
    return compile_opened(opened, request, small=small, reuse=reuse)


def compile_opened(
    opened: Graph | OpenModel,
    request: CompileRequest,
    *,
    small: bool | None = False,
    reuse: KernelReuse | None = None,
) -> CompiledModel | SizedModel:
    """A model that is imported, compiled as the request for it says; see `compile_request`."""
    target = request.wanted_target()
    profile, preparation = profile_for(request, target), Preparation.of(request)
    if not isinstance(opened, Graph) and target.precision == "int8":  # of the one program alone
        of_sizes = target.with_precision("float32")
        preparation = dataclasses.replace(preparation, calibration=None)
    else:
        of_sizes = target

    def compiled(graph: Graph, reuse: KernelReuse | None = None) -> CompiledModel:
        with open_log(request.log) as store:
            return compile_graph(
                graph, of_sizes, store, preparation, profile=profile, reuse=reuse, small=small
            )

    if not isinstance(opened, Graph):
        program = open_program(target, profile, request.log, request.calibration)
        return sized_model(opened, request, compiled, program)
    size_ranges(request.ranges, ())
    return compiled(opened, reuse)


def open_program(
    target: Target,
    profile: DeviceProfile | None,
    log: str | os.PathLike[str] | LogStore | None = None,
    calibration: Samples | None = None,
) -> OpenProgram:
    """What compiles models for all sizes at once."""

    def program(model: OpenModel, ranges: Mapping[str, SizeRange]) -> AnySizeProgram:
        with open_log(log) as store:
            return compile_open(
                model, ranges, target=target, profile=profile, versions=_versions(), log=store,
                calibration=calibration,
            )  # fmt: skip

    return program


def profile_for(request: CompileRequest, target: Target) -> DeviceProfile | None:
    """The profile of the machine that the request names, else of this one where it runs the
    target."""
    if request.machine == NOMINAL:
        return None
    named = request.wanted_profile()
    if named is not None:
        return named
    here = this_machine(target, request.measured_folder())
    return here and dataclasses.replace(here, target=target)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Options of a request that are about its graph; see `CompileRequest`."""

    calibration: Samples | None = None
    rewrites: str | os.PathLike[str] | None = None
    rewrite_time: float | None = None

    @staticmethod
    def of(request: CompileRequest) -> Preparation:
        return Preparation(
            calibration=request.calibration, rewrites=request.rewrites,
            rewrite_time=request.rewrite_time,
        )  # fmt: skip


def compile_graph(
    graph: Graph,
    target: Target,
    log: LogStore | None = None,
    preparation: Preparation | None = None,
    processes: int | None = None,
    *,
    profile: DeviceProfile | None = None,
    reuse: KernelReuse | None = None,
    small: bool | None = False,
) -> CompiledModel:
    """Compile an imported graph; kernels are built in `processes` processes (default: as many as
    there are cores). `profile`: of the machine that default schedules are for, if it is known.
    `reuse`: what there is of compiles for other sizes; `small`: see `compile_request`."""
    if runs_here(target):
        room.check_model(graph, physical_bytes())
    preparation = preparation or Preparation()
    ready = prepare(
        graph, target.precision, preparation.calibration,
        short=target.short_tensors, halves=converts_halves(target),
        rewrite=rewriting(target, preparation.rewrites, log, preparation.rewrite_time),
        pays=bytes_that_pay(target, lambda: profile, log),
    )  # fmt: skip
    for array in (*graph.constants.values(), *ready.graph.constants.values()):
        drop_pages(array)
    image, notes = compile_prepared(
        ready.graph, target, log, processes, profile=profile, reuse=reuse, small=small
    )
    notes = (*ready.notes, *notes)
    for note in notes:
        _LOGGER.warning(note)
    model = CompiledModel(image, notes=notes)
    if ready.quantized is not None:
        model.quantization = ready.quantized.judged(_runner(model, ready.graph))
    return model


def compile_prepared(
    graph: Graph,
    target: Target,
    log: LogStore | None = None,
    processes: int | None = None,
    known: Known | None = None,
    *,
    profile: DeviceProfile | None = None,
    reuse: KernelReuse | None = None,
    small: bool | None = False,
) -> tuple[ModelImage, tuple[str, ...]]:
    """The image of a graph that is prepared for the target, and what the compiler has to say about
    it; `known`: kernels that need not be built; `reuse`: kernels and constants of other sizes."""
    known = reuse.known if reuse else known
    parts = arranged(graph, target, log)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    tasks, unaligned = tuple(parts.weights()), unaligned_params(parts, target)
    plan = plan_memory(parts, lend=target.lends_halos)
    if runs_here(target):
        room.check_bytes("what its kernels pass on", plan.arena_bytes, physical_bytes())
    light = small_choices(parts, target, log, profile) if small is not False else None
    if light and small is None and light.cost > HARDLY:
        light = None
    together = light.configs if light else chosen_together(parts, plan, target, log, profile)
    defaults = Defaults(
        profile=profile,
        preferred=together or {},
        unrecorded=light.configs.keys() if light else frozenset(),
    )
    kernels = build_kernels(
        tasks, target, log, processes or cores or 1,
        unaligned=unaligned, known=known, defaults=defaults,
    )  # fmt: skip
    if reuse:
        reuse.keep(kernels)
    if target.is_compact:
        plan = with_workspaces(parts, plan, kernels)
    chosen = ((task, choice.schedule) for task, choice in kernels.chosen.items())
    notes = (*kernels.notes, *kept_float32(chosen, target))
    notes = (*notes, light.note()) if light else notes
    shared = reuse.constants if reuse else None
    versions = (*_versions(), ("log", _records_digest(kernels)))
    return link(parts, plan, kernels, target, versions, shared=shared), notes


def _records_digest(kernels: Kernels) -> str:
    """A digest of the schedules that came from a log's records; empty where none did."""
    rows = sorted(
        f"{task.key} {json.dumps(schedule_to_json(choice.schedule))}"
        for task, choice in kernels.chosen.items()
        if choice.source in ("record", "nearest")
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16] if rows else ""


def _runner(model: CompiledModel, graph: Graph) -> Callable[[Feeds], Feeds]:
    """Runs the model, or its graph by numpy where the model is for another machine."""
    if not runs_here(model.image.target):
        return lambda feeds: run_graph(graph, feeds, "float32")
    return model.run


@contextlib.contextmanager
def open_log(log: str | os.PathLike[str] | LogStore | None) -> Iterator[LogStore | None]:
    """A log to read from: opened and closed here if it is named, left open if it is given open. A
    missing one is none, for which SQLAlchemy is not needed."""
    if log is None or not isinstance(log, str | os.PathLike):
        yield log
        return
    from autotune.db import files, opening

    if not files.is_url(os.fspath(log)) and not files.exists(Path(log)):
        yield None
        return
    store = opening.open_log(os.fspath(log), missing_ok=True)
    try:
        yield store
    finally:
        store.close()


def _versions() -> tuple[tuple[str, str], ...]:
    return ("autotune-compiler", release()), ("llvmlite", metadata.version("llvmlite"))
