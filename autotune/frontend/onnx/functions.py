"""Functions of an ONNX model. In: a model. Out: the same, with what functions consist of in place
of every call: of the model's own, and of the standard's that have no importer.
"""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterator

import onnx
import onnx.inliner

from autotune.errors import ModelError
from autotune.frontend.onnx.context import IMPORTERS
from autotune.frontend.onnx.control import CONTROLS

STANDARD = ("", "ai.onnx.preview")
"""Domains of the standard's operators that are spelled out."""
MOST_NODES = 1_000_000
"""Nodes of a model once its functions are written out."""
MOST_ROUNDS = 8
"""Functions that consist of functions are spelled out one after the other."""


_REFUSALS = (RuntimeError, ValueError, onnx.shape_inference.InferenceError)
"""What onnx says of functions that it cannot write out."""


def without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raises ModelError where the model's own functions are damaged."""
    if model.functions:
        if (written := _nodes_written(model)) > MOST_NODES:
            raise ModelError(
                f"the model's functions, written out, are {written:.3g} nodes; at most "
                f"{MOST_NODES} are taken: export the model without functions of functions"
            )
        try:
            model = onnx.inliner.inline_local_functions(model)
        except (onnx.checker.ValidationError, *_REFUSALS) as error:
            raise ModelError(f"the model's functions: {error}; export the model again") from error
    for _ in range(MOST_ROUNDS):
        calls = list(_standard_functions(model))
        if not calls:
            break
        try:
            if any("" in node.input for node, _ in calls):
                model = onnx.inliner.inline_local_functions(_with_functions(model))
            model = onnx.inliner.inline_selected_functions(
                model,
                sorted({(node.domain, node.op_type) for node, _ in calls}),
                inline_schema_functions=True,
            )
        except _REFUSALS:
            # Types that are not known, more than 2 GB: then the call is refused as what it is.
            break
    return model


def _nodes_written(model: onnx.ModelProto) -> int:
    """How many nodes a model has without functions of its own; 0 where one consists of itself,
    which the inliner says. Functions of functions may be exponentially many."""
    bodies = {
        (f.domain, f.name, f.overload): Counter(map(_called, _nodes(f))) for f in model.functions
    }
    sizes: dict[tuple[str, str, str], int] = {}
    try:
        for name in graphlib.TopologicalSorter(bodies).static_order():
            calls = bodies.get(name)
            sizes[name] = sum(n * sizes[c] for c, n in calls.items()) if calls is not None else 1
    except graphlib.CycleError:
        return 0
    return sum(sizes.get(_called(node), 1) for node in _nodes(model.graph))


def _called(node: onnx.NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _standard_functions(
    model: onnx.ModelProto,
) -> Iterator[tuple[onnx.NodeProto, onnx.defs.OpSchema]]:
    """Nodes of the standard's operators without an importer, which it says how to spell out."""
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    for node in _nodes(model.graph):
        known = node.op_type in IMPORTERS or node.op_type in CONTROLS
        domain = "" if node.domain == "ai.onnx" else node.domain
        if known or domain not in STANDARD:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            continue
        if schema.has_function or schema.has_context_dependent_function:  # type: ignore[attr-defined]
            yield node, schema


def _with_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with functions of its own for nodes that leave inputs out, which the inliner does
    not spell out by itself where the function depends on the types of the inputs."""
    out, opset = onnx.ModelProto(), max(o.version for o in model.opset_import)
    out.CopyFrom(model)
    types = _types(model)
    for number, (node, schema) in enumerate(_standard_functions(out)):
        if "" not in node.input or not schema.has_context_dependent_function:  # type: ignore[attr-defined]
            continue
        given = [types.get(n, onnx.TypeProto()).SerializeToString() for n in node.input]
        versions = schema.context_dependent_function_opset_versions  # type: ignore[attr-defined]
        made = schema.get_context_dependent_function_with_opset_version(  # type: ignore[attr-defined]
            max(v for v in versions if v <= opset), node.SerializeToString(), given
        )
        function = onnx.FunctionProto.FromString(made)
        function.domain, function.name = "written", f"{node.op_type}.{number}"
        node.domain, node.op_type = function.domain, function.name
        out.functions.append(function)
    out.opset_import.append(onnx.helper.make_opsetid("written", 1))
    return out


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of a graph's values, as far as the standard infers them."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    graph = onnx.shape_inference.infer_shapes(bare).graph
    found = {i.name: i.type for some in (graph.input, graph.value_info) for i in some}
    for tensor in graph.initializer:
        found[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return found


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those within it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
