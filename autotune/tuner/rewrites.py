"""The graph that a run tunes, chosen by measured times. In: what prepares the graph by a log, a
runner, a log. Out: the graph, and records of the tasks that speak for it and against others.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from autotune.compiler.prepare import Prepared
from autotune.db.types import LogStore
from autotune.measure.types import Runner
from autotune.tuner.layouts import measure_defaults
from autotune.tuner.options import TuneOptions

_ROUNDS = 3
"""Choices, each by what the one before had measured: times may speak for a graph that was not
looked at before."""


def measured_choice(
    first: Prepared,
    again: Callable[[], Prepared],
    runner: Runner,
    store: LogStore,
    options: TuneOptions,
) -> tuple[Prepared, TuneOptions, int]:
    """What the times of the deciding tasks choose, the options that are left, and how many tasks
    were measured. `again`: prepares the graph by the log as it is then."""
    started_s, tried, chosen = time.monotonic(), 0, first
    for _ in range(_ROUNDS):
        count = measure_defaults(chosen.decisive, runner, store, options)
        if not count:
            break
        tried += count
        chosen = again()
    if not tried:
        return chosen, options, 0
    limits = options.limits.without(time.monotonic() - started_s)
    if limits.trials is not None:
        limits = dataclasses.replace(limits, trials=max(limits.trials - tried, 1))
    return chosen, dataclasses.replace(options, limits=limits), tried
