"""The whole compilation. In: what `autotune.compile` gets. Out: a CompiledModel."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from autotune.compiler.build import build_kernels
from autotune.compiler.link import link
from autotune.db.types import Store
from autotune.frontend import load_model
from autotune.graph.ir import Graph
from autotune.graph.partition import partition
from autotune.graph.pipeline import optimize
from autotune.runtime.executor import CompiledModel
from autotune.runtime.memory_plan import plan_memory
from autotune.target import Target

_LOGGER = logging.getLogger("autotune.compile")
_LOGGER.addHandler(logging.NullHandler())


def compile_model(
    model: str | Path,
    *,
    target: Target,
    log: str | Path | Store | None,
    shapes: Mapping[str, tuple[int, ...]] | None,
) -> CompiledModel:
    """See `autotune.compile`."""
    graph = load_model(str(model), shapes)
    with open_log(log) as store:
        return compile_graph(graph, target, store)


def compile_graph(
    graph: Graph, target: Target, log: Store | None = None, processes: int | None = None
) -> CompiledModel:
    """Compile an imported graph; kernels are built in `processes` processes (default: as many as
    there are cores)."""
    parts = partition(optimize(graph))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kernels = build_kernels(tuple(parts.weights()), target, log, processes or cores or 1)
    for note in kernels.notes:
        _LOGGER.warning(note)
    image = link(parts, plan_memory(parts), kernels, target, _versions())
    return CompiledModel(image, notes=kernels.notes)


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
    return tuple((name, metadata.version(name)) for name in ("autotune-compiler", "llvmlite"))
