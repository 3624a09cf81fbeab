"""The registry of importers of ONNX operators, and the context that one works with.

An importer is one function: it reads the node's inputs and attributes through a `NodeContext`,
adds ops to the graph, and returns the value (or values) it made:

    @importer("LeakyRelu")
    def leaky_relu(n: NodeContext) -> str:
        return n.op("leaky_relu", n.input(0), alpha=n.number("alpha", 0.01))

Importers raise ModelError or UnsupportedOpError with a plain message; the caller adds the
operator, the node's name and the opset. An attribute that no importer asked for is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.onnx.mapped import brought_in, is_mapped, mapped_array
from autotune.graph.build import GraphBuilder
from autotune.registry import Registry
from autotune.shapes import whole
from autotune.types import DTYPES, Array, TensorType

Importer = Callable[["NodeContext"], "str | tuple[str, ...]"]
IMPORTERS: Registry[Importer] = Registry("ONNX operator", room="autotune.frontend.onnx.importer")


def importer(*operators: str) -> Callable[[Importer], Importer]:
    """Register a function as the importer of some ONNX operators."""

    def register(function: Importer) -> Importer:
        for operator in operators:
            IMPORTERS.add(operator, function)
        return function

    return register


class NodeContext(Assembler):
    """One ONNX node during import: its operands, its attributes, and the graph being built."""

    def __init__(
        self,
        node: onnx.NodeProto,
        opset: int,
        builder: GraphBuilder,
        values: Mapping[str, str],
        kinds: Mapping[str, int],
    ) -> None:
        super().__init__(builder)
        self.operator = node.op_type
        self.opset = opset
        self.inputs = tuple(node.input)
        self.outputs = tuple(node.output)
        self._values = values
        self._kinds = kinds
        self._attrs = {str(a.name): onnx.helper.get_attribute_value(a) for a in node.attribute}
        self._unread = set(self._attrs)

    # ------------------------------------------------------------------------------- operands

    def input(self, position: int) -> str:
        """The graph value of a required input."""
        value = self.optional(position)
        if value is None:
            raise ModelError(f"input {position} is missing; the model is malformed")
        return value

    def optional(self, position: int) -> str | None:
        """The graph value of an optional input, None where the node leaves it out."""
        if position >= len(self.inputs) or not self.inputs[position]:
            return None
        return self._values[self.inputs[position]]

    def kind(self, position: int) -> int:
        """The ONNX type of an input that graphs do not have (see `kinds`), else 0."""
        return self._kinds.get(self.inputs[position], 0) if position < len(self.inputs) else 0

    def rest(self, start: int = 0) -> list[str]:
        """The graph values of all inputs from `start` on (variadic operators)."""
        return [self.input(i) for i in range(start, len(self.inputs))]

    def parameter(self, position: int) -> Array | None:
        """The array of an optional input that must be constant; None where it is left out."""
        value = self.optional(position)
        if value is None:
            return None
        array = self.evaluated(value)
        if array is None:
            raise self.open_value(
                position,
                f"input {position} ({self.inputs[position]!r}) must be a constant, but it is "
                "computed from the model's inputs; simplify the model or export it with fixed "
                "shapes",
            )
        return array

    def open_value(self, position: int, text: str) -> UnsupportedOpError:
        """The error of an input whose value must be known, and is not before a run."""
        error = UnsupportedOpError(text)
        error.value = self.inputs[position]
        error.inputs = self.builder.inputs_of(self.input(position))
        return error

    def int_parameter(self, position: int) -> tuple[int, ...] | None:
        """A constant integer input as a flat tuple."""
        array = self.parameter(position)
        return None if array is None else tuple(whole(v) for v in array.ravel())

    def required_ints(self, position: int) -> tuple[int, ...]:
        """A constant integer input that must be there."""
        self.input(position)
        return self.int_parameter(position) or ()

    # ----------------------------------------------------------------------------- attributes

    def has(self, name: str) -> bool:
        return name in self._attrs

    def attribute(self, name: str, default: Any = None) -> Any:
        self._unread.discard(name)
        return self._attrs.get(name, default)

    def integer(self, name: str, default: int) -> int:
        return int(self._typed(name, default, int))

    def number(self, name: str, default: float) -> float:
        return float(self._typed(name, default, int | float))

    def text(self, name: str, default: str) -> str:
        value = self._typed(name, default, bytes | str)
        return value.decode() if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> onnx.TensorProto | None:
        value: onnx.TensorProto | None = self._typed(name, None, onnx.TensorProto)
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self._typed(name, None, list)
        return None if value is None else tuple(int(v) for v in value)

    def _typed(self, name: str, default: Any, kind: type | UnionType) -> Any:
        value = self.attribute(name, default)
        if value is not default and not isinstance(value, kind):
            raise ModelError(f"attribute {name} has the value {value!r} of a wrong type")
        return value

    def ignore(self, *names: str) -> None:
        """These attributes do not change the result at inference."""
        self._unread.difference_update(names)

    def check_attributes(self) -> None:
        """Raise where the node has an attribute that the importer does not know."""
        if self._unread:
            raise UnsupportedOpError(
                f"attribute {', '.join(sorted(self._unread))} is not supported; "
                "remove it or export the model without it"
            )


def tensor_array(tensor: onnx.TensorProto, what: str) -> Array:
    """The array of an ONNX tensor. Raises ModelError where it is damaged or of a foreign type."""
    widened = _WIDENED.get(tensor.data_type)
    if widened is None:
        dtype_name(tensor.data_type, what)
    if is_mapped(tensor):
        if widened is None:
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
            return mapped_array(tensor, kind.newbyteorder("<"), what)
        tensor = brought_in(tensor, what)
    elif tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ModelError(f"{what}: the data lie in another file; import the model by its path")
    try:
        if any(dim < 0 for dim in tensor.dims):
            raise ValueError("a dimension is negative")
        array = np.asarray(numpy_helper.to_array(tensor))
        return array if widened is None else array.astype(widened)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{what}: the tensor's data do not fit its shape {tuple(tensor.dims)} ({error}); "
            "the file is damaged, write it again"
        ) from error


def dense_array(sparse: onnx.SparseTensorProto, what: str) -> Array:
    """The dense array of a sparse tensor: its indices are flat, or rows of one per dimension.
    Raises ModelError where it is damaged."""
    shape, values = tuple(sparse.dims), tensor_array(sparse.values, what)
    places = tensor_array(sparse.indices, f"{what}: its indices")
    out = np.zeros(shape, values.dtype)
    try:
        if any(i < 0 for i in (places.min(initial=0), *shape)):
            raise IndexError("an index is negative")
        if places.ndim == 2:
            out[tuple(places.T)] = values
        else:
            out.reshape(-1)[places] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"{what}: its indices do not fit the shape {shape}: {error}") from error
    return out


def onnx_type(dtype: str) -> int:
    """The ONNX type of an element type of ours."""
    return int(getattr(onnx.TensorProto, _ONNX_NAMES.get(dtype, dtype.upper())))


def dtype_name(element_type: int, what: str) -> str:
    """Our name of an ONNX element type; of one that graphs do not have, that of what holds it."""
    if element_type in _WIDENED:
        return _WIDENED[element_type]
    known = {onnx_type(d): d for d in DTYPES}
    if element_type not in known:
        names = {v: k for k, v in onnx.TensorProto.DataType.items()}
        if element_type not in names:
            raise ModelError(f"{what}: element type {element_type} is none that ONNX has")
        raise UnsupportedOpError(
            f"{what}: element type {names[element_type]} is not supported; "
            f"supported are {', '.join(DTYPES)}, float16, bfloat16: convert the model to float32"
        )
    return known[element_type]


_WIDENED: dict[int, str] = {
    onnx.TensorProto.FLOAT16: "float32", onnx.TensorProto.BFLOAT16: "float32",
    onnx.TensorProto.FLOAT8E4M3FN: "float32", onnx.TensorProto.FLOAT8E5M2: "float32",
    onnx.TensorProto.FLOAT8E4M3FNUZ: "float32", onnx.TensorProto.FLOAT8E5M2FNUZ: "float32",
    onnx.TensorProto.FLOAT8E8M0: "float32", onnx.TensorProto.FLOAT4E2M1: "float32",
    onnx.TensorProto.INT4: "int8", onnx.TensorProto.UINT4: "uint8",
    onnx.TensorProto.INT2: "int8", onnx.TensorProto.UINT2: "uint8",
}  # fmt: skip
"""Types whose values are held in a wider one here: every value is one of that, unrounded."""
_ONNX_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}
"""Where they are not our names in capitals."""


def tensor_type(dtype: str, shape: Sequence[int]) -> TensorType:
    return TensorType(dtype=dtype, shape=tuple(whole(e) for e in shape))
