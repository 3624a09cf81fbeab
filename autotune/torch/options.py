"""Options of `torch.compile(..., options=...)`. In: a dict. Out: a CompileOptions, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autotune import arguments
from autotune.errors import ConfigError
from autotune.graph.ir import Graph
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel

PASSED_ON = ("target", "machine", "cache_dir", "log", "threads", "accuracy", "precision")
"""Options of `autotune.compile` that mean the same here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options of `autotune.compile`."""

    compile: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> CompileOptions:
        """The options in a dict, checked. Raises InputError, of one line, for an option that there
        is not, or of a wrong value."""
        passed: dict[str, Any] = {"threads": torch.get_num_threads()}
        for name, value in arguments.by_name("options", given or {}, "a dict of options").items():
            if name not in PASSED_ON:
                hint = arguments.suggestion(name, PASSED_ON)
                raise ConfigError(
                    f"backend 'autotune' has no option {name!r}, only "
                    f"{arguments.listed(PASSED_ON)}{hint}"
                )
            passed[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
        found = CompileOptions(compile=tuple(passed.items()))
        found.request(_NOTHING)
        return found

    def compiled(self, graph: Graph) -> CompiledModel:
        """A graph, compiled with these options."""
        from autotune.compiler.driver import compile_request

        made = compile_request(self.request(graph))
        assert isinstance(made, CompiledModel)  # its sizes are fixed
        return made

    def request(self, graph: Graph) -> CompileRequest:
        """The request to compile a graph. Raises InputError."""
        return CompileRequest(graph, **dict(self.compile))


_NOTHING = Graph(name="nothing", inputs=(), outputs=(), nodes=(), constants={}, types={})
