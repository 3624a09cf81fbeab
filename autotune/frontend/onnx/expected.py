"""Messages about a node that the standard does not allow. In: a node before its import, or one
whose importer failed. Out: one line with what it was given and what the standard asks for.

Importers say themselves what they check. What they take for granted (as many dimensions as they
name, an entry for each) is the standard's, whose schemas say it too.
"""

from __future__ import annotations

import functools
import re

import onnx

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext
from autotune.frontend.onnx.kinds import UNLIMITED, kind_name
from autotune.printable import one_line
from autotune.sizes import is_size

MISFITS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
    StopIteration,
)  # fmt: skip
"""What an importer raises of itself on a node that breaks what it takes for granted."""
_PYTHON = re.compile(
    r"values to unpack|index out of range|zip\(\) argument|cannot reshape array|"
    r"is not in (list|tuple|range)|shape-mismatch|math domain|arg is an empty|empty sequence|"
    r"invalid literal|cannot convert|is out of bounds for axis|must be (a|an|real)|byte must be"
)
"""Messages of the interpreter and numpy: they speak of our code, not of the model."""
_DIMENSIONS = re.compile(r"[\[(]([^\[\]()]*,[^\[\]()]*)[\])]")
"""Dimensions in the description of an input, such as `[seq_length, batch_size, input_size]`."""
_MOST = 300
"""Characters of what the standard's shape inference says."""


def check_node(node: onnx.NodeProto, context: NodeContext) -> None:
    """Raises ModelError where a node lacks an attribute that the standard requires, has more
    inputs than it has, or truth values or narrow numbers where it does not take them."""
    schema = _schema(node.op_type, node.domain, context.opset)
    if schema is None:
        return
    if len(node.input) > schema.max_input:
        most = _counted(str(schema.max_input))
        raise ModelError(f"expected at most {most}, got {len(node.input)}; export the model again")
    given = {a.name for a in node.attribute}
    lacking = [n for n, a in schema.attributes.items() if a.required and n not in given]
    if lacking:
        raise ModelError(f"attribute {lacking[0]} is missing; export the model again")
    for position in range(len(node.input)):
        kind = context.builder.types.get(context.optional(position) or "")
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        narrow = context.kind(position)
        name = kind_name(narrow) if narrow and narrow not in UNLIMITED else ""
        if name and f"tensor({name.lower()})" not in formal.types:
            raise ModelError(f"{formal.name} cannot be {name}; cast it to float32 or int8 before")
        if kind is not None and kind.dtype == "bool" and "tensor(bool)" not in formal.types:
            raise ModelError(f"inputs must be numbers, got {kind} for {formal.name}")


def misfit(node: onnx.NodeProto, context: NodeContext, error: Exception) -> str:
    """Why a node was not understood, and what would have been."""
    said = "" if _is_internal(error) else f": {one_line(str(error), _MOST)}"
    said = said or _inferred(node, context)
    parts = [f"its operands do not fit together{said}", f"got {_given(node, context)}"]
    if wanted := _wanted(node, context.opset):
        parts.append(f"expected {wanted}")
    if not said:
        parts.append("onnx.checker tells what is malformed; where nothing is, please report this")
    return "; ".join(parts)


def _is_internal(error: Exception) -> bool:
    return not isinstance(error, ValueError) or bool(_PYTHON.search(str(error)))


def _given(node: onnx.NodeProto, context: NodeContext) -> str:
    """Inputs as types, attributes by name."""
    inputs = []
    for position, name in enumerate(node.input):
        value = context.optional(position)
        kind = context.builder.types.get(value) if value is not None else None
        inputs.append(f"{name} {kind}" if kind is not None else name or "nothing")
    attributes = ", ".join(sorted(a.name for a in node.attribute))
    given = f"{_counted(str(len(inputs)))} ({', '.join(inputs)})" if inputs else "no inputs"
    return f"{given} and {attributes}" if attributes else given


def _wanted(node: onnx.NodeProto, opset: int) -> str:
    """The inputs that the standard has for an operator, with the dimensions it names."""
    schema = _schema(node.op_type, node.domain, opset)
    if schema is None:
        return ""
    inputs = []
    for formal in schema.inputs:
        found = _DIMENSIONS.search(formal.description or "")
        inputs.append(f"{formal.name} [{one_line(found[1])}]" if found else formal.name)
    least, most = schema.min_input, schema.max_input
    count = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"{least}+"
    return f"{_counted(count)} ({', '.join(inputs)})"


def _counted(count: str) -> str:
    return f"{count} input{'' if count == '1' else 's'}"


@functools.lru_cache(maxsize=1024)
def _schema(operator: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    if domain not in ("", "ai.onnx"):
        return None
    try:
        return onnx.defs.get_schema(operator, min(opset, onnx.defs.onnx_opset_version()))
    except onnx.defs.SchemaError:
        return None


def _inferred(node: onnx.NodeProto, context: NodeContext) -> str:
    """What the standard's own shape inference has against the node; empty where it has nothing."""
    schema = _schema(node.op_type, node.domain, context.opset)
    if schema is None:
        return ""
    types = {}
    for position, name in enumerate(node.input):
        kind = context.builder.types.get(context.optional(position) or "")
        if kind is None or not hasattr(onnx.TensorProto, _names(kind.dtype)):
            continue
        element = getattr(onnx.TensorProto, _names(kind.dtype))
        dims = [None if is_size(extent) else extent for extent in kind.shape]
        types[name] = onnx.helper.make_tensor_type_proto(element, dims)
    try:
        onnx.shape_inference.infer_node_outputs(schema, node, types)
    except onnx.shape_inference.InferenceError as error:
        return f": {one_line(str(error).split(')', 1)[-1], _MOST)}"
    except Exception:  # what it cannot do says nothing of the node
        return ""
    return ""


def _names(dtype: str) -> str:
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
