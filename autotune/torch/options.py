"""Options of `torch.compile(..., options=...)`. In: a dict. Out: a CompileOptions, checked."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from autotune import arguments
from autotune.errors import ConfigError, InputError
from autotune.graph.ir import Graph
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from autotune.torch.model_parts import ModelParts
from autotune.torch.open_piece import OpenPiece

_LOGGER = logging.getLogger("autotune.torch")
PASSED_ON = (
    "target", "machine", "cache_dir", "log", "threads", "accuracy", "precision", "rewrites",
    "rewrite_time",
)  # fmt: skip
"""Options of `autotune.compile` that mean the same here."""
OWN = ("tune", "min_gain")
LOG = "torch.db"
"""The log of what `tune` measures where none is named, in the folder of measurements."""
MIN_GAIN = 0.8
"""Below 1, since a prediction of eager's time is a rough one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options of `autotune.compile`, and the backend's own."""

    compile: tuple[tuple[str, Any], ...] = ()
    tune_s: float | None = None
    """For how long each new graph is tuned before it is compiled; not where None."""
    min_gain: float = MIN_GAIN
    """How many times as fast as eager a piece must be predicted to be; what is not is eager's."""

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> CompileOptions:
        """The options in a dict, checked. Raises InputError, of one line, for an option that there
        is not, or of a wrong value."""
        passed: dict[str, Any] = {"threads": torch.get_num_threads()}
        own: dict[str, Any] = {}
        known = (*PASSED_ON, *OWN)
        for name, value in arguments.by_name("options", given or {}, "a dict of options").items():
            if name not in known:
                hint = arguments.suggestion(name, known)
                raise ConfigError(
                    f"backend 'autotune' has no option {name!r}, only "
                    f"{arguments.listed(known)}{hint}"
                )
            if name == "accuracy" and value == "reproducible":
                raise ConfigError(
                    "accuracy reproducible is not for backend 'autotune', since PyTorch may run "
                    "parts with other bits: compile a torch.export program instead, or take strict"
                )
            if name == "tune":
                own["tune_s"] = None if value is None else arguments.duration(name, value)
            elif name == "min_gain":
                own[name] = arguments.factor(name, value)
            else:
                passed[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
        found = CompileOptions(compile=tuple(passed.items()), **own)
        found.request(_NOTHING)
        return found

    def compiled(
        self, graph: Graph | OpenPiece, parts: ModelParts | None = None
    ) -> CompiledModel | SizedModel:
        """A graph, or a model of open sizes, compiled with these options; a graph is tuned first
        where that is asked for and the log does not know it. `parts`: of the model that a graph is
        of."""
        from autotune.compiler.driver import compile_opened, compile_request

        if not isinstance(graph, Graph):
            return compile_opened(graph, self.request(_NOTHING))
        if self.tune_s is not None:
            from autotune.torch.first_tuning import tune_unknown

            try:
                tune_unknown(self.request(graph), self.tune_s)
            except InputError as error:
                _LOGGER.warning("a graph is not tuned: %s", error)
        request = self.request(graph)
        if parts is None:
            return compile_request(request)
        weight_bytes = sum(array.nbytes for array in graph.constants.values())
        return parts.compiled(lambda reuse: compile_request(request, reuse=reuse), weight_bytes)

    def request(self, graph: Graph) -> CompileRequest:
        """The request to compile a graph. Raises InputError."""
        request = CompileRequest(graph, **dict(self.compile))
        if self.tune_s is None or request.log is not None:
            return request
        folder = request.measured_folder()
        if folder is None:
            raise ConfigError("there is no home to keep a log in; name one: log=")
        Path(folder).mkdir(parents=True, exist_ok=True)
        return CompileRequest(graph, **dict(self.compile), log=Path(folder) / LOG)


_NOTHING = Graph(name="nothing", inputs=(), outputs=(), nodes=(), constants={}, types={})
