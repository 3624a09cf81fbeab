"""Dialects of C: spellings in which its languages differ. In: types, lanes, values. Out: text.

Generated code uses short type names (`f32`, `f32x8`, ...) that its head defines for the language,
so that the statements themselves are the same in C99 with GCC's vectors and in OpenCL C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.types import ITEM_BYTES

SHORT = {
    "float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "int8": "i8",
    "uint8": "u8", "bool": "u8", "bfloat16": "u16", "uint32": "u32", "uint64": "u64",
    "int16": "i16", "uint16": "u16",
}  # fmt: skip
"""Names of element types in generated code. Truth values take a byte in memory."""
LONG = {short: name for name, short in SHORT.items() if name not in ("bool", "bfloat16")}
_C_TYPES = {
    "f32": "float", "f64": "double", "i64": "int64_t", "i32": "int32_t", "i8": "int8_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "i16": "int16_t",
}  # fmt: skip
_OPENCL_TYPES = {
    "f32": "float", "f64": "double", "i64": "long", "i32": "int", "i8": "char", "u8": "uchar",
    "u16": "ushort", "u32": "uint", "u64": "ulong", "i16": "short",
}  # fmt: skip
SHORT_BYTES = {short: ITEM_BYTES[name] for name, short in SHORT.items()}


def float_constant(value: float, dtype: str = "float32") -> str:
    """A literal that is read back exactly."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}" if dtype == "float32" else f"{value:.17g}"
    text = text if "." in text or "e" in text else text + ".0"
    return text + "f" if dtype == "float32" else text


def type_name(dtype: str, lanes: int) -> str:
    """The type of a value: f32, f32x8."""
    short = SHORT.get(dtype, dtype)
    return short if lanes == 1 else f"{short}x{lanes}"


def split_type(name: str) -> tuple[str, int]:
    """f32x8 -> (f32, 8)."""
    short, _, lanes = name.partition("x")
    return short, int(lanes or 1)


def mask_of(short: str) -> str:
    """The element type of comparisons of such vectors: as wide, all bits set or none."""
    return {8: "i64", 4: "i32", 2: "i16", 1: "i8"}[SHORT_BYTES[short]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One language. `opencl` switches between the two spellings there are."""

    opencl: bool
    lanes: tuple[int, ...]
    """Lane counts that have a vector type."""

    def typedef(self, name: str) -> list[str]:
        """Lines that define a type name, and for a vector its load and store."""
        short, lanes = split_type(name)
        if lanes == 1:
            return [f"typedef {(_OPENCL_TYPES if self.opencl else _C_TYPES)[short]} {name};"]
        if self.opencl:
            return [
                f"typedef {_OPENCL_TYPES[short]}{lanes} {name};",
                f"#define {name}_load(p) vload{lanes}(0, p)",
                f"#define {name}_store(p, v) vstore{lanes}(v, 0, p)",
            ]
        item = SHORT_BYTES[short]
        size = f"vector_size({lanes * item})"
        return [
            f"typedef {short} {name} __attribute__(({size}));",
            f"typedef {short} {name}_u __attribute__(({size}, aligned({item}), may_alias));",
            f"#define {name}_load(p) (({name})*(const {name}_u *)(p))",
            f"#define {name}_store(p, ...) (*({name}_u *)(p) = (__VA_ARGS__))",
        ]

    def literal_vector(self, name: str, elements: Sequence[str]) -> str:
        """A vector from its elements."""
        inside = ", ".join(elements)
        return f"({name})({inside})" if self.opencl else f"({name}){{{inside}}}"

    def splat(self, name: str, text: str) -> str:
        """A vector with one value in every lane. Less zero: it keeps the sign of a zero."""
        return f"({name})({text})" if self.opencl else f"(({text}) - ({name}){{0}})"

    def lane(self, text: str, lane: int) -> str:
        return f"{text}.s{lane:x}" if self.opencl else f"{text}[{lane}]"

    def convert(self, source: str, name: str, text: str) -> str:
        """A value of another element type, rounding toward zero where it becomes an integer."""
        if split_type(name)[1] == 1:
            return f"(({name})({text}))"
        if self.opencl:
            return f"{self.converter(name)}({text})"
        return f"__builtin_convertvector({text}, {name})" if source != name else text

    def converter(self, name: str) -> str:
        """OpenCL's function that converts to a type."""
        short, lanes = split_type(name)
        return f"convert_{_OPENCL_TYPES[short]}{lanes if lanes > 1 else ''}"

    def reinterpret(self, name: str, text: str) -> str:
        """The same bits as a vector or scalar of another type; scalars in OpenCL only."""
        short, lanes = split_type(name)
        if self.opencl:
            return f"as_{_OPENCL_TYPES[short]}{lanes if lanes > 1 else ''}({text})"
        return f"(({name})({text}))"


C99 = Dialect(opencl=False, lanes=(2, 4, 8, 16, 32, 64))
OPENCL = Dialect(opencl=True, lanes=(2, 4, 8, 16))
