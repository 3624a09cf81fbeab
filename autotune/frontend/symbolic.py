"""Models whose inputs have symbolic dimensions. In: an ONNX model in memory, and what the user
says of its inputs' shapes. Out: a `SymbolicModel`, which gives a graph for every set of sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from autotune.frontend.onnx.context import dtype_name
from autotune.frontend.onnx.importer import check_operators, import_model, model_inputs
from autotune.frontend.onnx.inputs import Dims, Shapes, declared_dims, resolve_dims
from autotune.frontend.onnx.kinds import DECLARED
from autotune.graph.ir import Graph
from autotune.size_ranges import SizedType, symbols_of


class SymbolicModel:
    """A model with all its tensors, and the symbols in the shapes of its inputs.

    A dimension without a name gets one: `INPUT.AXIS`, of inputs; of outputs `?`, and `...` stands
    for all dimensions of an output that declares none."""

    def __init__(
        self, model: onnx.ModelProto, inputs: Mapping[str, SizedType], *, whole: bool = True
    ) -> None:
        """`whole`: see `import_model`."""
        self._model, self._whole = model, whole
        self.name = model.graph.name or "model"
        self.inputs = inputs
        self.outputs = {info.name: _output_type(info) for info in model.graph.output}
        self.symbols = symbols_of(inputs.values())
        self.weight_bytes = sum(t.ByteSize() for t in model.graph.initializer)

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """The model where its symbols have these sizes; an input that has no elements there is a
        constant. Raises what importing does."""
        empty = {n: k for n, k in self.inputs.items() if 0 in k.at(sizes).shape}
        if empty:
            return self._without(empty, sizes)
        shapes = {name: kind.at(sizes).shape for name, kind in self.inputs.items()}
        return import_model(self._model, shapes, whole=self._whole)

    def _without(self, empty: Mapping[str, SizedType], sizes: Mapping[str, int]) -> Graph:
        graph = self._model.graph
        inputs = [info for info in graph.input if info.name not in empty]
        arrays = {n: np.zeros(k.at(sizes).shape, k.dtype) for n, k in empty.items()}
        model = onnx.ModelProto(ir_version=self._model.ir_version)
        model.opset_import.extend(self._model.opset_import)
        model.functions.extend(self._model.functions)
        model.graph.CopyFrom(graph)
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
        )
        left = {n: k.at(sizes).shape for n, k in self.inputs.items() if n not in empty}
        return import_model(model, left, whole=self._whole)

    def open_graph(self, sizes: Mapping[str, int]) -> Graph:
        """The model with sizes of `autotune.sizes` for its symbols. Raises what importing does,
        and whatever an importer does that must know a size."""
        return self.graph(sizes)

    def limits(self) -> Mapping[str, tuple[int, int]]:
        """None: ONNX has no ranges."""
        return {}


def symbolic_model(
    model: onnx.ModelProto, shapes: Shapes, *, whole: bool = True
) -> SymbolicModel | None:
    """The model if any dimension of its inputs stays a symbol. Raises ModelError where a shape
    does not fit, or an input declares none; UnsupportedOpError."""
    infos = model_inputs(model.graph)
    resolved = resolve_dims(infos, shapes)
    if not any(isinstance(dim, str) for dims in resolved for dim in dims or ()):
        return None
    check_operators(model)
    pairs = list(zip(infos, resolved, strict=True))
    inputs = {info.name: _input_type(info, dims) for info, dims in pairs}
    return SymbolicModel(model, inputs, whole=whole)


def _input_type(info: onnx.ValueInfoProto, dims: Dims) -> SizedType:
    shape = [f"{info.name}.{axis}" if dim == "?" else dim for axis, dim in enumerate(dims)]
    return _sized(info, shape)


def _output_type(info: onnx.ValueInfoProto) -> SizedType:
    dims = declared_dims(info)
    return _sized(info, ["..."] if dims is None else dims)


def _sized(info: onnx.ValueInfoProto, shape: Sequence[int | str]) -> SizedType:
    kind = info.type.tensor_type.elem_type
    dtype = DECLARED.get(kind) or dtype_name(kind, f"{info.name!r}")
    return SizedType(dtype=dtype, shape=tuple(shape))
