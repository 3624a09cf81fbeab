"""Small TensorFlow Lite models, written for tests, and TensorFlow Lite as their judge.

In: operators with their tensors. Out: the bytes of a file; what the reference kernels make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autotune.types import Array

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
flatbuffers = pytest.importorskip("flatbuffers")

_TYPES = {
    "float32": "FLOAT32", "int32": "INT32", "int8": "INT8", "int64": "INT64", "uint8": "UINT8",
    "int16": "INT16", "uint16": "UINT16", "bool": "BOOL", "float16": "FLOAT16",
    "resource": "RESOURCE",
}  # fmt: skip
_VERSIONS = {
    "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "RESHAPE": 1, "EXPAND_DIMS": 1,
    "HARD_SWISH": 1, "RELU_N1_TO_1": 1, "SQUEEZE": 1, "ARG_MAX": 2, **dict.fromkeys((
        "ADD_N", "ASSIGN_VARIABLE", "CALL_ONCE", "CEIL", "COS", "CUMSUM", "DENSIFY",
        "DEPTH_TO_SPACE", "ELU", "FLOOR",
        "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NEG", "ONE_HOT", "POW", "PRELU", "RANK",
        "REDUCE_ALL", "REDUCE_ANY", "RELU_0_TO_1", "ROUND", "SHAPE", "SIN", "SQUARE", "VAR_HANDLE",
        "READ_VARIABLE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "ZEROS_LIKE",
    ), 1),
}  # fmt: skip
"""Versions of operators as kernels register them, where it is not the second."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of a model: with `data` a constant; with `scale` quantized."""

    shape: Sequence[int]
    dtype: str = "int8"
    scale: float | Sequence[float] = ()
    zero: int = 0
    data: Array | None = None
    axis: int = 0
    kept: bool = False
    """Whether it keeps its value from one run to the next."""
    block: tuple[int, int] | None = None
    """The file lists only those blocks of this matrix that have numbers."""


def constant(data: Any, dtype: str = "int32", **about: Any) -> Tensor:
    array = np.asarray(data, dtype)
    return Tensor(shape=array.shape, dtype=dtype, data=array, **about)


RNG = np.random.default_rng(0)
NONE, RELU, N1_TO_1, RELU6 = 0, 1, 2, 3
SAME, VALID = 0, 1


def q(*shape: int, scale: float = 0.05, zero: int = 3) -> Tensor:
    return Tensor(shape=shape, scale=scale, zero=zero)


def f(*shape: int) -> Tensor:
    return Tensor(shape=shape, dtype="float32")


def weights(*shape: int, axis: int = 0, channels: bool = True) -> Tensor:
    scales: Any = RNG.uniform(0.001, 0.02, shape[axis]) if channels else 0.007
    return constant(RNG.integers(-127, 128, shape), "int8", scale=scales, axis=axis)


def bias(count: int) -> Tensor:
    return constant(RNG.integers(-2000, 2000, count))


def floats(*shape: int) -> Tensor:
    return constant(RNG.standard_normal(shape), "float32")


@dataclass(kw_only=True)
class Operator:
    """An operator by its name; `options`: (its kind, fields)."""

    name: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    options: tuple[str, dict[str, Any]] | None = None
    within: Sequence[Tensor] = ()
    """Tensors that only say how numbers inside of it count."""


def conv(
    stride: int, padding: int, activation: int, dilation: int = 1
) -> tuple[str, dict[str, Any]]:
    return "Conv2DOptions", {
        "strideH": stride, "strideW": stride, "padding": padding, "dilationHFactor": dilation,
        "dilationWFactor": dilation, "fusedActivationFunction": activation,
    }  # fmt: skip


def depthwise(stride: int, padding: int, multiplier: int = 1) -> tuple[str, dict[str, Any]]:
    name, fields = conv(stride, padding, RELU6)
    return f"Depthwise{name}", fields | {"depthMultiplier": multiplier}


def pool(
    size: int, stride: int, padding: int, activation: int = NONE
) -> tuple[str, dict[str, Any]]:
    return "Pool2DOptions", {
        "strideH": stride, "strideW": stride, "filterHeight": size, "filterWidth": size,
        "padding": padding, "fusedActivationFunction": activation,
    }  # fmt: skip


def activation(kind: str, value: int = NONE) -> tuple[str, dict[str, Any]]:
    return kind, {"fusedActivationFunction": value}


def tflite_bytes(
    operators: Sequence[Operator],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    once: Sequence[Operator] = (),
) -> bytes:
    """The file of a model; tensors are told apart by identity. `once`: the operators of a second
    graph, which one of the first names."""
    model = schema.ModelT()
    model.version, model.description = 3, b"a test's"
    model.buffers, model.operatorCodes = [schema.BufferT()], []
    model.subgraphs = [_graph(model, operators, inputs, outputs)]
    if once:
        model.subgraphs.append(_graph(model, once, (), ()))
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _graph(
    model: Any, operators: Sequence[Operator], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Any:
    graph = schema.SubGraphT()
    graph.name, graph.tensors, graph.operators = b"main", [], []
    numbers: dict[int, int] = {}

    def number(tensor: Tensor | None) -> int:
        if tensor is None:
            return -1
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(graph.tensors)
            graph.tensors.append(_tensor(model, tensor, f"t{len(graph.tensors)}"))
        return numbers[id(tensor)]

    graph.inputs = [number(t) for t in inputs]
    for each in operators:
        made = schema.OperatorT()
        code = schema.OperatorCodeT()
        builtin = getattr(schema.BuiltinOperator, each.name)
        code.builtinCode, code.version = builtin, _VERSIONS.get(each.name, 2)
        code.deprecatedBuiltinCode = min(builtin, 127)
        made.opcodeIndex = len(model.operatorCodes)
        model.operatorCodes.append(code)
        made.inputs = [number(t) for t in each.inputs]
        made.outputs = [number(t) for t in each.outputs]
        made.intermediates = [number(t) for t in each.within]
        if each.options is not None:
            kind, fields = each.options
            made.builtinOptions = getattr(schema, f"{kind}T")()
            made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            for name, value in fields.items():
                setattr(made.builtinOptions, name, value)
        graph.operators.append(made)
    graph.outputs = [number(t) for t in outputs]
    return graph


def _tensor(model: Any, tensor: Tensor, name: str) -> Any:
    made = schema.TensorT()
    made.name, made.shape = name.encode(), list(tensor.shape)
    made.type = getattr(schema.TensorType, _TYPES[tensor.dtype])
    made.buffer, made.isVariable = 0, tensor.kept
    data = tensor.data
    if tensor.block is not None:
        made.sparsity, data = _sparse(tensor)
    if data is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        made.buffer = len(model.buffers)
        model.buffers.append(buffer)
    scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
    if scales.size:
        steps = schema.QuantizationParametersT()
        steps.scale, steps.zeroPoint = scales, np.full(scales.size, tensor.zero, np.int64)
        steps.quantizedDimension = tensor.axis
        made.quantization = steps
    return made


def _sparse(tensor: Tensor) -> tuple[Any, Array]:
    """(description, numbers) of a matrix: rows of blocks, of which some are listed."""
    assert tensor.data is not None
    assert tensor.block is not None
    (rows, columns), (high, wide) = tensor.shape, tensor.block
    blocks = tensor.data.reshape(rows // high, high, columns // wide, wide).swapaxes(1, 2)
    there = blocks.any(axis=(2, 3))
    made = schema.SparsityParametersT()
    made.traversalOrder, made.blockMap = [0, 1, 2, 3], [0, 1]
    made.dimMetadata = [schema.DimensionMetadataT() for _ in range(4)]
    outer, listed, *inside = made.dimMetadata
    for level, size in zip((outer, *inside), (rows // high, high, wide), strict=True):
        level.format, level.denseSize = schema.DimensionType.DENSE, size
    listed.format = schema.DimensionType.SPARSE_CSR
    listed.arraySegmentsType = schema.SparseIndexVector.Int32Vector
    listed.arraySegments = schema.Int32VectorT()
    listed.arraySegments.values = np.cumsum([0, *there.sum(axis=1)]).tolist()
    listed.arrayIndicesType = schema.SparseIndexVector.Uint8Vector
    listed.arrayIndices = schema.Uint8VectorT()
    listed.arrayIndices.values = np.nonzero(there)[1].astype(np.uint8)
    return made, blocks[there]


def judged(model: bytes, arrays: Sequence[Array], *, reference: bool = True) -> list[Array]:
    """Outputs by TensorFlow Lite's reference kernels; those of its others where an operator has
    none, or without `reference`."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def of(kernels: OpResolverType) -> Any:
        return Interpreter(
            model_content=model, experimental_op_resolver_type=kernels, num_threads=1
        )

    others = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        judge = of(OpResolverType.BUILTIN_REF if reference else others)
    except ValueError:
        judge = of(others)
    judge.allocate_tensors()
    for about, array in zip(judge.get_input_details(), arrays, strict=True):
        judge.set_tensor(about["index"], array)
    judge.invoke()
    return [judge.get_tensor(about["index"]) for about in judge.get_output_details()]
