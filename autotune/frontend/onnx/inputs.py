"""Shapes of a model's inputs. In: declared inputs and the user's shapes. Out: shapes, static ones
or with the symbols that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from autotune.errors import EmptyInputError, ModelError, UnsupportedOpError
from autotune.shapes import whole

Dims = list[int | str]
Shapes = Mapping[str, tuple[int | str, ...]]


def resolve_shapes(infos: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> list[tuple[int, ...]]:
    """One static shape per input. A named symbolic dimension fixed at one input is fixed at all.

    Raises ModelError where a shape does not fit, names no input, or a dimension stays symbolic."""
    declared = [declared_dims(info) for info in infos]
    found = zip(infos, declared, resolve_dims(infos, shapes), strict=True)
    return [_static(info.name, dims or [], fixed) for info, dims, fixed in found]


def resolve_dims(infos: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> list[Dims]:
    """The dimensions per input: extents, and symbols where neither the file nor the user fixes
    them. Symbols of the user's take the place of the file's, at all inputs that have these.

    Raises ModelError where a shape does not fit, names no input, or is missing."""
    names = [i.name for i in infos]
    if unknown := sorted(set(shapes) - set(names)):
        raise ModelError(
            f"a shape is given for {', '.join(map(repr, unknown))}, but the model's inputs are "
            f"{', '.join(map(repr, names))}"
        )
    declared = [declared_dims(info) for info in infos]
    bound: dict[str, int | str] = {}
    for name, dims in zip(names, declared, strict=True):
        if name in shapes:
            _bind(name, dims, shapes[name], bound)
    return [
        list(shapes[name]) if name in shapes else _bound(name, dims, bound)
        for name, dims in zip(names, declared, strict=True)
    ]


def declared_dims(info: onnx.ValueInfoProto) -> Dims | None:
    """Integers, or names of symbolic dimensions; None where the input declares no shape."""
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type"):
        raise UnsupportedOpError(
            f"input {info.name!r} is not a tensor; only tensors are supported"
        )
    if not tensor.HasField("shape"):
        return None
    return [_dimension(d) for d in tensor.shape.dim]


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """An extent, or the name of a symbolic one; "?" of one without. Less than 0 is how some
    exporters write an unknown one."""
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or "?"


def _bind(
    name: str, dims: Dims | None, shape: tuple[int | str, ...], bound: dict[str, int | str]
) -> None:
    if any(isinstance(extent, int) and extent < 1 for extent in shape):
        raise ModelError(f"shape {_text(shape)} of input {name!r} must have positive dimensions")
    if dims is None:
        return
    fits = len(dims) == len(shape) and all(
        isinstance(d, str) or d in (0, s) for d, s in zip(dims, shape, strict=True)
    )
    if not fits:
        raise ModelError(
            f"shape {_text(shape)} given for input {name!r} does not fit the declared "
            f"{_text(dims)}; only symbolic dimensions can be chosen"
        )
    for dim, extent in zip(dims, shape, strict=True):
        if isinstance(dim, str) and dim != "?" and bound.setdefault(dim, extent) != extent:
            raise ModelError(
                f"symbolic dimension {dim!r} is fixed to {bound[dim]} and to {extent} (input "
                f"{name!r}); give both inputs the same extent"
            )


def _bound(name: str, dims: Dims | None, bound: Mapping[str, int | str]) -> Dims:
    if dims is None:
        raise UnsupportedOpError(
            f"input {name!r} declares no shape; pass --shape {name}=1x3x224x224"
        )
    if 0 in dims:
        raise EmptyInputError(
            f"input {name!r} has the shape {_text(dims)}: a dimension of no elements; tensors "
            "here have at least one: export the model with the extents you want, or (if 0 is how "
            f"its exporter writes what is not known) pass --shape {name}={_chosen(dims)}"
        )
    return [bound.get(d, d) if isinstance(d, str) else d for d in dims]


def _static(name: str, declared: Dims, dims: Dims) -> tuple[int, ...]:
    if any(isinstance(d, str) for d in dims):
        raise ModelError(
            f"input {name!r} has symbolic dimensions {_text(declared or dims)}; "
            f"pass --shape {name}={_chosen(dims)} with the extents you want"
        )
    return tuple(whole(d) for d in dims)


def _chosen(dims: Sequence[int | str]) -> str:
    """An example: 1 for what is left to choose."""
    return "x".join("1" if isinstance(d, str) or not d else str(d) for d in dims) or "1"


def _text(dims: Sequence[int | str]) -> str:
    return "x".join(map(str, dims)) or "()"
