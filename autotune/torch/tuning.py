"""Tuning from PyTorch. In: a model with example inputs, or whatever is compiled in a block; a log.
Out: the log with what was measured, which `options={"log": ...}` takes, and a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import fx

from autotune import arguments
from autotune.errors import ConfigError
from autotune.graph.ir import Graph
from autotune.graph.join import joined
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from autotune.torch.backend import Compiled, compiled_by
from autotune.torch.open_piece import OpenPiece
from autotune.torch.options import CompileOptions
from autotune.tuner.report import TuneReport


class Tuning:
    """Collects what `torch.compile(model, backend=tuning.backend)` compiles inside a `with` block,
    and tunes all of it where the block ends without an error.

        with autotune.torch.Tuning(log="tuned.db", time="2m") as tuning:
            torch.compile(model, backend=tuning.backend)(x)
    """

    def __init__(
        self,
        *,
        log: Any,
        time: str | float | None = None,
        trials: int | None = None,
        **options: Any,
    ) -> None:
        """`time`: seconds, or a text like '2m'; without it and `trials`, a number of trials for
        each task. `options`: as the backend's. Raises InputError, in one line."""
        if {"tune", "min_gain"} & options.keys():
            raise ConfigError("tune and min_gain are options of the backend, not of a tuning")
        self._options = CompileOptions.of({**options, "log": log})
        self._limits = {
            "time_s": None if time is None else arguments.duration("time", time),
            "trials": trials,
        }
        self._graphs: list[Graph] = []
        self.report: TuneReport | None = None
        """What the tuning found, after the block; None where nothing was collected."""

    def backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        """What `torch.compile` takes: it compiles by the log as it is, and keeps the graph."""
        return compiled_by(self._compiled, module, inputs)

    def _compiled(self, graph: Graph | OpenPiece) -> CompiledModel | SizedModel:
        self._graphs.append(graph if isinstance(graph, Graph) else graph.usual())
        return self._options.compiled(graph)

    def __enter__(self) -> Tuning:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and self._graphs:
            from autotune.tuner import api

            options = dict(self._options.compile) | self._limits
            self.report = api.tune(joined(self._graphs), **options)


def tune(
    model: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    log: Any,
    time: str | float | None = None,
    trials: int | None = None,
    **options: Any,
) -> TuneReport | None:
    """Tune a model for inputs like these, which it is run with once, without gradients; see
    `Tuning`. Compile it afterwards with `options={"log": log}`, here or in later processes."""
    with Tuning(log=log, time=time, trials=trials, **options) as tuning, torch.no_grad():
        torch.compile(model, backend=tuning.backend)(*example_inputs)
    return tuning.report
