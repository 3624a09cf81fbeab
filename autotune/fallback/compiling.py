"""Compile whatever ONNX says. In: a CompileRequest. Out: one native call where the model is that,
else a model of stages."""

from __future__ import annotations

import onnx

from autotune.compiler.driver import (
    Preparation,
    compile_graph,
    compile_request,
    open_log,
    open_program,
    profile_for,
)
from autotune.compiler.this_machine import runs_here
from autotune.errors import (
    ControlFlowError,
    EmptyInputError,
    LengthError,
    ModelError,
    UnsupportedOpError,
)
from autotune.fallback.model import StagedModel
from autotune.fallback.staged_graph import without_importers
from autotune.frontend import is_onnx, open_model, read_model
from autotune.frontend.onnx.functions import without_functions
from autotune.graph.ir import Graph
from autotune.request import CompileRequest
from autotune.runtime.counting import Counting
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel

LARGER = 64
"""Steps from the least sizes at which a model with loops is tried."""


def compile_any(request: CompileRequest) -> CompiledModel | SizedModel | StagedModel:
    """See `autotune.compile`."""
    target = request.wanted_target()
    staged = is_onnx(request.model) and target.precision != "int8" and runs_here(target)
    try:
        made = compile_request(request, whole=not staged)
        if isinstance(made, SizedModel):
            _try_sizes(request, made, whole=not staged)
    except (UnsupportedOpError, EmptyInputError) as error:
        ours = isinstance(error, EmptyInputError | ControlFlowError | LengthError) or bool(
            error.inputs
        )
        if target.is_reproducible:
            raise UnsupportedOpError(
                f"{error}; others may run it with other bits, so not with accuracy reproducible: "
                "take strict"
            ) from None
        if not staged or not (request.fallback or ours):
            raise
        return _staged(request, error)
    return made


def _try_sizes(request: CompileRequest, model: SizedModel, *, whole: bool) -> None:
    """Import the model at sizes that it may have; where it loops, at larger ones too, since sizes
    may say how often. Raises UnsupportedOpError."""
    opened = open_model(request.model, request.shapes, whole=whole)
    if isinstance(opened, Graph):
        return
    ranges = model.ranges.items()
    sizes = [{symbol: found.least for symbol, found in ranges}]
    nodes = read_model(request.model).graph.node if is_onnx(request.model) else ()
    if any(node.op_type in ("Loop", "Scan") for node in nodes):
        sizes.append({s: min(r.most, r.least + LARGER * r.step) for s, r in ranges})
    for each in sizes:
        try:
            opened.graph(each)
        except UnsupportedOpError:
            raise
        except ModelError:  # other sizes may fit
            continue


def _staged(request: CompileRequest, refused: ModelError) -> StagedModel:
    """The model in stages. Raises `refused` where a node is of an operator that nobody has."""
    model, target = without_functions(read_model(request.model)), request.wanted_target()
    profile = profile_for(request, target)

    def compiled(graph: Graph) -> CompiledModel:
        with open_log(request.log) as store:
            return compile_graph(graph, target, store, Preparation.of(request), profile=profile)

    foreign = without_importers(model.graph) if request.fallback else []
    standard = [n for n in foreign if n.domain in ("", "ai.onnx")]
    if not all(onnx.defs.has(node.op_type) for node in standard):
        raise refused
    opened = open_program(target, profile, request.log)
    return StagedModel(model, compiled, opened, Counting(target), fallback=request.fallback)
