"""ONNX element types that graphs do not have: which of a model's values are of one.

In: nodes and the types of what they read. Out: types of results. A graph holds 16-bit and 8-bit
floats as float32, and integers of less than 8 bits as bytes, so that its own types do not tell.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import onnx
from onnx import TensorProto

from autotune.errors import ModelError
from autotune.frontend.onnx.context import dtype_name

FLOAT_KINDS: dict[int, str] = {
    TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16",
    TensorProto.FLOAT8E4M3FN: "float8e4m3fn", TensorProto.FLOAT8E4M3FNUZ: "float8e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8e5m2", TensorProto.FLOAT8E5M2FNUZ: "float8e5m2fnuz",
    TensorProto.FLOAT8E8M0: "float8e8m0", TensorProto.FLOAT4E2M1: "float4e2m1",
}  # fmt: skip
"""Floats of fewer bits -> their name as what `narrow_float` rounds to."""
INT_KINDS: dict[int, int] = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip
"""Integers of less than eight bits -> how many they have."""
UNLIMITED = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
"""Floats that casts do not limit to their largest."""
DECLARED: dict[int, str] = {
    kind: onnx.helper.tensor_dtype_to_np_dtype(kind).name for kind in (*FLOAT_KINDS, *INT_KINDS)
}
"""Types that inputs and outputs may have in memory outside -> numpy's name, or ml_dtypes'."""


def kind_name(kind: int) -> str:
    """The standard's name of an element type."""
    return str(TensorProto.DataType.Name(kind))


def result_kinds(node: onnx.NodeProto, opset: int, kinds: Mapping[str, int]) -> dict[str, int]:
    """Narrow types of a node's outputs, by name: those of attributes, or of the input that the
    standard says has the same type; of the first input where it does not know the operator."""
    found: dict[str, int] = {}
    given = _given(node)
    inputs, outputs = _type_names(node.op_type, node.domain, opset)
    for position, output in enumerate(node.output):
        wanted = outputs[min(position, len(outputs) - 1)] if outputs else ""
        same = [n for i, n in enumerate(node.input) if _at(inputs, i) == wanted]
        kind = given if given else kinds.get(same[0] if same else "", 0)
        if kind in DECLARED and output:
            found[output] = kind
    return found


def declared_type(info: onnx.ValueInfoProto, kinds: Mapping[str, int], made: str) -> str:
    """numpy's name of the narrow type that an output is declared to be; empty for other types.
    Raises ModelError where it is declared to be another type than what is `made`."""
    kind = info.type.tensor_type.elem_type or kinds.get(info.name, 0)
    if kind and dtype_name(kind, f"output {info.name!r} of the model") != made:
        raise ModelError(
            f"output {info.name!r} of the model is declared {kind_name(kind)}, what makes it "
            f"gives {made}; export the model again"
        )
    return DECLARED.get(kind, "")


def _given(node: onnx.NodeProto) -> int:
    """The type that an attribute gives a node's results, 0 where none does."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype"):
            return int(attribute.i)
        if attribute.name == "value" and attribute.HasField("t"):
            return int(attribute.t.data_type)
    return 0


@functools.lru_cache(maxsize=1024)
def _type_names(operator: str, domain: str, opset: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the types of an operator's inputs and outputs; alike for operators that the
    standard does not have."""
    try:
        schema = onnx.defs.get_schema(operator, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return ("T",), ("T",)
    return tuple(i.type_str for i in schema.inputs), tuple(o.type_str for o in schema.outputs)


def _at(names: tuple[str, ...], position: int) -> str:
    """The last input of an operator may stand for several."""
    return names[min(position, len(names) - 1)] if names else ""
