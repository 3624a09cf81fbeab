"""ONNX importers: casts. What is cast to a type that graphs do not have takes its values."""

from __future__ import annotations

from autotune.frontend.onnx.context import NodeContext, dtype_name, importer, onnx_type
from autotune.frontend.onnx.kinds import FLOAT_KINDS, INT_KINDS, UNLIMITED


@importer("Cast")
def cast(n: NodeContext) -> str:
    return _cast_to(n, n.integer("to", 0), "the type to cast to")


@importer("CastLike")
def cast_like(n: NodeContext) -> str:
    wanted = n.kind(1) or onnx_type(n.dtype(n.input(1)))
    return _cast_to(n, wanted, "the type to cast like")


def _cast_to(n: NodeContext, wanted: int, what: str) -> str:
    x, rounding = n.input(0), n.text("round_mode", "up")
    saturate = bool(n.integer("saturate", 1))
    if wanted and wanted == n.kind(0):
        return x
    if wanted in INT_KINDS:
        if n.dtype(x) not in ("float32", "float64"):
            x = n.cast(x, "int32")
        return narrowed(n, x, wanted, dtype_name(wanted, what))
    if wanted not in FLOAT_KINDS:
        return n.cast(x, dtype_name(wanted, what))
    real = n.cast(x, "float32")
    if FLOAT_KINDS[wanted] == POWERS:
        return n.op("power_of_two", real, rounding=rounding)
    return narrowed(n, real, wanted, "float32", saturate=saturate)


POWERS = "float8e8m0"
"""The type whose values are the powers of two."""


def narrowed(n: NodeContext, x: str, wanted: int, holder: str, *, saturate: bool = True) -> str:
    """Numbers with the values of a narrow type; of integers the lowest bits."""
    if wanted in INT_KINDS:
        signed = holder == "int8"
        return n.cast(n.op("low_bits", x, bits=INT_KINDS[wanted], signed=signed), holder)
    limited = saturate and wanted not in UNLIMITED
    return n.op("narrow_float", x, kind=FLOAT_KINDS[wanted], saturate=limited)
