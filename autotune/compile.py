"""Compile a model. In: a model, a target and a tuning log. Out: a CompiledModel, ready to run.

Only this signature is imported with the package; the compiler itself is loaded by the first call.
"""

from __future__ import annotations

import typing

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
    from autotune.fallback.compiling import compile_any

    return compile_any(request)
