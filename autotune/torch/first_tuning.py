"""The tuning of graphs that a log does not know. In: a request to compile one. Out: the log, with
records."""

from __future__ import annotations

import dataclasses
import logging

from autotune.compiler.driver import open_log, partition_with
from autotune.request import CompileRequest

_LOGGER = logging.getLogger("autotune.torch")


def tune_unknown(request: CompileRequest, time_s: float) -> None:
    """Tune a request's graph where the log has records for less than half of its tasks. Raises
    InputError."""
    from autotune.tuner import api  # only what tunes needs a database

    target = request.wanted_target()
    with open_log(request.log) as store:
        tasks = partition_with(request, target, store).weights()
        known = sum(bool(store and store.best(task.key, target)) for task in tasks)
    if 2 * known >= len(tasks):
        return
    _LOGGER.info("%d kernels of a graph are tuned for %g s", len(tasks), time_s)
    given = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    api.tune(**given, time_s=time_s)
