"""The whole compilation. In: what `autotune.compile` gets. Out: a CompiledModel."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from autotune.compiler.build import Known, build_kernels
from autotune.compiler.link import link
from autotune.compiler.odd import odd_params
from autotune.db.types import Store
from autotune.errors import ArtifactError
from autotune.frontend import load_model
from autotune.graph.feeds import Feeds, Samples
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.memory_plan import plan_memory
from autotune.graph.prepare import prepare
from autotune.layouts.choose import arranged
from autotune.release import release
from autotune.runtime.executor import CompiledModel
from autotune.runtime.host import check_host
from autotune.runtime.image import ModelImage
from autotune.target import Target

_LOGGER = logging.getLogger("autotune.compile")
_LOGGER.addHandler(logging.NullHandler())


def compile_model(
    model: str | Path,
    *,
    target: Target,
    log: str | Path | Store | None,
    shapes: Mapping[str, tuple[int, ...]] | None,
    calibration: Samples | None = None,
) -> CompiledModel:
    """See `autotune.compile`."""
    graph = load_model(str(model), shapes)
    with open_log(log) as store:
        return compile_graph(graph, target, store, calibration=calibration)


def compile_graph(
    graph: Graph,
    target: Target,
    log: Store | None = None,
    processes: int | None = None,
    calibration: Samples | None = None,
) -> CompiledModel:
    """Compile an imported graph; kernels are built in `processes` processes (default: as many as
    there are cores)."""
    prepared = prepare(graph, target.precision, calibration, short=target.short_tensors)
    image, notes = compile_prepared(prepared.graph, target, log, processes)
    for note in notes:
        _LOGGER.warning(note)
    model = CompiledModel(image, notes=notes)
    if prepared.quantized is not None:
        model.quantization = prepared.quantized.judged(_runner(model, prepared.graph))
    return model


def compile_prepared(
    graph: Graph,
    target: Target,
    log: Store | None = None,
    processes: int | None = None,
    known: Known | None = None,
) -> tuple[ModelImage, tuple[str, ...]]:
    """The image of a graph that is prepared for the target, and what the compiler has to say about
    it; `known`: kernels that need not be built."""
    parts = arranged(graph, target, log)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    tasks, odd = tuple(parts.weights()), odd_params(parts, target)
    kernels = build_kernels(tasks, target, log, processes or cores or 1, odd=odd, known=known)
    plan = plan_memory(parts, lend=target.lends_halos)
    return link(parts, plan, kernels, target, _versions()), kernels.notes


def _runner(model: CompiledModel, graph: Graph) -> Callable[[Feeds], Feeds]:
    """Runs the model, or its graph by numpy where the model is for another machine."""
    try:
        check_host(model.image.target, "the model")
    except ArtifactError:
        return lambda feeds: run_graph(graph, feeds, "float32")
    return model.run


@contextlib.contextmanager
def open_log(log: str | Path | Store | None) -> Iterator[Store | None]:
    """A log to read from: opened and closed here if it is named, left open if it is given open."""
    if log is None or not isinstance(log, str | Path):
        yield log
        return
    from autotune.db import opening

    store = opening.open_log(log, missing_ok=True)
    try:
        yield store
    finally:
        store.close()


def _versions() -> tuple[tuple[str, str], ...]:
    return ("autotune-compiler", release()), ("llvmlite", metadata.version("llvmlite"))
