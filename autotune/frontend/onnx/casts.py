"""ONNX importers: casts. What is cast to a type that graphs do not have takes its values."""

from __future__ import annotations

from autotune.frontend.onnx.context import NodeContext, dtype_name, importer, onnx_type
from autotune.frontend.onnx.kinds import DECLARED, FLOAT_KINDS, INT_KINDS


@importer("Cast")
def cast(n: NodeContext) -> str:
    return _cast_to(n, n.integer("to", 0), "the type to cast to")


@importer("CastLike")
def cast_like(n: NodeContext) -> str:
    wanted = n.kind(1) or onnx_type(n.dtype(n.input(1)))
    return _cast_to(n, wanted, "the type to cast like")


def _cast_to(n: NodeContext, wanted: int, what: str) -> str:
    n.ignore("round_mode")
    x, saturate = n.input(0), n.integer("saturate", 1)
    if wanted and wanted == n.kind(0):
        return x
    if holder := INT_KINDS.get(wanted):
        return _low_bits(n, x, holder)
    if wanted in FLOAT_KINDS:
        # The standard saturates floats of eight bits only.
        limited = bool(saturate) and wanted not in DECLARED
        real = n.cast(x, "float32")
        return n.op("narrow_float", real, kind=FLOAT_KINDS[wanted], saturate=limited)
    return n.cast(x, dtype_name(wanted, what))


def _low_bits(n: NodeContext, x: str, holder: str) -> str:
    """Four bits of what a number is without its fraction."""
    if n.dtype(x) not in ("float32", "float64"):
        x = n.cast(x, "int32")
    return n.cast(n.op("low_bits", x, bits=4, signed=holder == "int8"), holder)
