"""Compile whatever ONNX says. In: a CompileRequest. Out: one native call where the model is that,
else a model of stages."""

from __future__ import annotations

import onnx

from autotune.compiler.driver import (
    Preparation,
    compile_graph,
    compile_request,
    open_log,
    profile_for,
)
from autotune.compiler.this_machine import runs_here
from autotune.errors import EmptyInputError, ModelError, UnsupportedOpError
from autotune.fallback.model import StagedModel
from autotune.fallback.stages import node_id
from autotune.frontend import is_onnx, open_model, read_model
from autotune.frontend.onnx.context import IMPORTERS
from autotune.frontend.onnx.control import CONTROLS
from autotune.frontend.onnx.functions import without_functions
from autotune.frontend.onnx.importer import operator_name
from autotune.graph.ir import Graph
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel


def compile_any(request: CompileRequest) -> CompiledModel | SizedModel | StagedModel:
    """See `autotune.compile`."""
    try:
        made = compile_request(request)
        if isinstance(made, SizedModel):
            _try_sizes(request, made)
    except (UnsupportedOpError, EmptyInputError) as error:
        target = request.wanted_target()
        staged = is_onnx(request.model) and target.precision != "int8"
        deciding = isinstance(error, EmptyInputError) or bool(error.inputs)
        if not staged or not runs_here(target) or not (request.fallback or deciding):
            raise
        return _staged(request, error)
    return made


def _try_sizes(request: CompileRequest, model: SizedModel) -> None:
    """Import the model at sizes that it may have. Raises UnsupportedOpError."""
    opened = open_model(request.model, request.shapes)
    if isinstance(opened, Graph):
        return
    try:
        opened.graph({symbol: found.least for symbol, found in model.ranges.items()})
    except UnsupportedOpError:
        raise
    except ModelError:  # other sizes may fit
        return


def _staged(request: CompileRequest, refused: ModelError) -> StagedModel:
    """The model in stages. Raises `refused` where a node is of an operator that nobody has."""
    model, target = without_functions(read_model(request.model)), request.wanted_target()
    profile = profile_for(request, target)

    def compiled(graph: Graph) -> CompiledModel:
        with open_log(request.log) as store:
            return compile_graph(graph, target, store, Preparation.of(request), profile=profile)

    foreign = _without_importers(model.graph) if request.fallback else []
    standard = [n for n in foreign if n.domain in ("", "ai.onnx")]
    if not all(onnx.defs.has(node.op_type) for node in standard):
        raise refused
    nodes = [node_id(node) for node in foreign]
    return StagedModel(model, compiled, foreign_nodes=nodes, fallback=request.fallback)


def _without_importers(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes of operators that nothing here imports."""
    operators = ((node, operator_name(node)) for node in graph.node)
    return [node for node, name in operators if name not in IMPORTERS and name not in CONTROLS]
