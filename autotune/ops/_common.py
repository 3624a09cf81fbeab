"""Helpers of all op families: attributes, shape checks, axes, broadcasting, literals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from autotune.errors import ModelError
from autotune.program.ir import Axis, Const, Index, Load, Value, fn, index
from autotune.shapes import broadcast_shapes, whole
from autotune.sizes import is_size
from autotune.types import SHORT_FLOATS, Array, Attrs, TensorType

Inputs = Sequence[tuple[str, TensorType]]
Output = tuple[str, TensorType]


def require(condition: bool, message: str) -> None:
    """Raise ModelError with the message unless the condition holds."""
    if not condition:
        raise ModelError(message)


def arity(op: str, types: Sequence[TensorType], low: int, high: int | None = None) -> None:
    """Raise ModelError unless the number of inputs is low .. high."""
    high = low if high is None else high
    if not low <= len(types) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise ModelError(f"{op} takes {wanted} inputs, got {len(types)}")


def integer(attrs: Attrs, name: str, default: int | None = None) -> int:
    """A whole-number attribute (booleans count)."""
    value = attrs.get(name, default)
    require(isinstance(value, int), f"attribute {name!r} must be an integer, got {value!r}")
    return int(cast(int, value))


def number(attrs: Attrs, name: str, default: float | None = None) -> float:
    """A floating-point attribute."""
    value = attrs.get(name, default)
    require(isinstance(value, int | float), f"attribute {name!r} must be a number, got {value!r}")
    return float(cast(float, value))


def text(attrs: Attrs, name: str, default: str, known: tuple[str, ...]) -> str:
    """A word out of a list."""
    value = attrs.get(name, default)
    require(value in known, f"attribute {name!r} must be one of {', '.join(known)}, got {value!r}")
    return str(value)


def integers(
    attrs: Attrs, name: str, default: tuple[int, ...] | None = None, length: int | None = None
) -> tuple[int, ...]:
    """A tuple of integers, of a given length if one is named."""
    value = attrs.get(name, default)
    good = isinstance(value, tuple | list) and all(isinstance(v, int) or is_size(v) for v in value)
    require(good, f"attribute {name!r} must be a list of integers, got {value!r}")
    items = tuple(whole(v) for v in cast(tuple[int, ...], value))
    if length is not None:
        require(len(items) == length, f"attribute {name!r} must have {length} items, got {items}")
    return items


def axis_of(attrs: Attrs, name: str, default: int, rank: int) -> int:
    """A dimension number; a negative one counts from the end."""
    value = integer(attrs, name, default)
    require(-rank <= value < rank, f"{name} {value} is out of range for rank {rank}")
    return value % rank


def places_of(indices: Array, extent: int) -> Array:
    """Computed places as kernels take them: negative ones count from the end, and those outside go
    to the nearest end."""
    counted = np.where(indices < 0, indices + extent, indices)
    return np.asarray(np.clip(counted, 0, max(extent - 1, 0)))


def axes_of(shape: Sequence[int], prefix: str = "d") -> tuple[Axis, ...]:
    """One axis per dimension: d0, d1, ..."""
    return tuple(Axis(f"{prefix}{i}", e) for i, e in enumerate(shape))


def at(axes: Sequence[Axis]) -> tuple[Index, ...]:
    """The point that the axes run over."""
    return tuple(index(a.name) for a in axes)


def broadcast_load(name: str, shape: Sequence[int], axes: Sequence[Axis]) -> Load:
    """Load an operand at the point of the axes it broadcasts over; index 0 where it repeats."""
    own = axes[len(axes) - len(shape) :]
    point = [
        Index() if e == 1 and a.extent != 1 else index(a.name)
        for e, a in zip(shape, own, strict=True)
    ]
    return Load(name, tuple(point))


def broadcast_shape(op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """numpy's broadcasting. ModelError where shapes do not fit."""
    try:
        return broadcast_shapes(shapes)
    except ValueError:
        listed = ", ".join(str(list(s)) for s in shapes)
        raise ModelError(f"{op}: shapes {listed} do not broadcast to one shape") from None


def is_float(dtype: str) -> bool:
    """Whether values of the type can be computed with as floating-point numbers."""
    return dtype in ("float32", "float64")


def const(value: float, dtype: str) -> Const:
    """A literal of a dtype."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if is_float(dtype) else int(value), dtype)


def same_dtype(op: str, types: Sequence[TensorType]) -> str:
    """The one dtype of all inputs. ModelError where they differ."""
    found = sorted({t.dtype for t in types})
    require(len(found) == 1, f"{op}: inputs must have one dtype, got {', '.join(found)}")
    return found[0]


def product_dtype(op: str, types: Sequence[TensorType]) -> str:
    """Element type of a sum of products: the one dtype of both, int32 for uint8 times int8,
    float32 where factors are short floats, or one is float32 and the other int8."""
    if multiplies_bytes(types):
        return "int32"
    if widens_bytes(types):
        return "float32"
    wide = [TensorType(dtype=computed_dtype(t.dtype), shape=t.shape) for t in types]
    return same_dtype(op, wide)


def multiplies_bytes(types: Sequence[TensorType]) -> bool:
    """Whether the factors are uint8 and int8."""
    return [t.dtype for t in types] == ["uint8", "int8"]


def widens_bytes(types: Sequence[TensorType]) -> bool:
    """Whether the factors are float32 and int8."""
    return [t.dtype for t in types] == ["float32", "int8"]


def product(a: Load, b: Load, types: Sequence[TensorType]) -> Value:
    """a * b in the element type of their sum."""
    if multiplies_bytes(types):
        return fn("mul", fn("to_int32", a), fn("to_int32", b))
    if widens_bytes(types):
        return fn("mul", a, fn("to_float32", b))
    return fn("mul", *(widened(load, t) for load, t in zip((a, b), types, strict=True)))


def widened(load: Load, type_: TensorType) -> Value:
    """An element as it is computed with."""
    return fn("to_float32", load) if type_.dtype in SHORT_FLOATS else load


def computed_dtype(dtype: str) -> str:
    """What elements of a type are computed in."""
    return "float32" if dtype in SHORT_FLOATS else dtype


def float_dtype(op: str, types: Sequence[TensorType]) -> str:
    """The one floating-point dtype of all inputs."""
    dtype = same_dtype(op, types)
    require(is_float(dtype), f"{op}: inputs must be floating point, got {dtype}")
    return dtype
