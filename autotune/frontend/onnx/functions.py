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
        called = sorted(set(_standard_functions(model)))
        if not called:
            break
        try:
            model = onnx.inliner.inline_selected_functions(
                model, [("", name) for name in called], inline_schema_functions=True
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


def _standard_functions(model: onnx.ModelProto) -> Iterator[str]:
    """Operators of the standard without an importer, which it says how to spell out."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    for node in _nodes(model.graph):
        known = node.op_type in IMPORTERS or node.op_type in CONTROLS
        if known or node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opset)
        except onnx.defs.SchemaError:
            continue
        if schema.has_function or schema.has_context_dependent_function:  # type: ignore[attr-defined]
            yield node.op_type


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those within it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
