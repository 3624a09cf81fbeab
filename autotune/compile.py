"""Compile a model. In: a model, a target and a tuning log. Out: a CompiledModel, ready to run.

Only this signature is imported with the package; the compiler itself is loaded by the first call.
"""

from __future__ import annotations

import os
import typing
import warnings

from autotune.errors import MissingLogWarning
from autotune.request import CompileRequest, taking

if typing.TYPE_CHECKING:
    from autotune.fallback.model import StagedModel
    from autotune.runtime.model import CompiledModel
    from autotune.runtime.sized import SizedModel


@taking(CompileRequest)
def compile(request: CompileRequest) -> CompiledModel | SizedModel | StagedModel:
    """The model as one native function for a target, ready to run or to save.

    Every task takes its best record of this target in `log`, else the nearest record of a similar
    task, else its default schedule. `notes` of the result says which schedules had to be replaced;
    its `quantization` how far the outputs of int8 are from those of float32 on the samples.

    A model whose inputs keep symbolic dimensions becomes a SizedModel, which runs on any sizes in
    their ranges; each new set of sizes is compiled when it is first met. One that only runs in
    stages becomes a StagedModel: where values that only a run knows decide shapes, and where nodes
    have no kernel here (see `fallback`)."""
    from autotune.db import files
    from autotune.fallback.compiling import compile_any

    log = request.log
    if isinstance(log, str | os.PathLike) and (absent := files.absent(os.fspath(log))):
        text = f"{absent}; every kernel gets its default schedule"
        warnings.warn(text, MissingLogWarning, stacklevel=3)
    return compile_any(request)
