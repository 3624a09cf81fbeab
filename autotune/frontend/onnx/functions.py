"""Functions of an ONNX model. In: a model. Out: the same, with what functions consist of in place
of every call: of the model's own, and of the standard's that have no importer.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.inliner

from autotune.errors import ModelError
from autotune.frontend.onnx.context import IMPORTERS
from autotune.frontend.onnx.control import CONTROLS

MOST_ROUNDS = 8
"""Functions that consist of functions are spelled out one after the other."""


_REFUSALS = (RuntimeError, ValueError, onnx.shape_inference.InferenceError)
"""What onnx says of functions that it cannot write out."""


def without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raises ModelError where the model's own functions are damaged."""
    if model.functions:
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


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those within it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
