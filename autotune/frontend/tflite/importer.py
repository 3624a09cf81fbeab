"""Import a TensorFlow Lite model. In: a .tflite file, or its bytes. Out: a `Graph`.

Sizes are those of the file. Results of int8 operators are those of TensorFlow Lite's reference
kernels, bit for bit. The importers of single operators are in the files beside this one, a family
each.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.tflite.context import (
    MOVED,
    TFLITE_IMPORTERS,
    OperatorContext,
    TfliteTensor,
)
from autotune.frontend.tflite.sparse import dense_array
from autotune.frontend.tflite.states import VARIABLE_OPERATORS, Variables
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.registry import load_folder
from autotune.types import DTYPES, Array, TensorType

IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of every file."""
VERSION = 3
_MISFITS = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    KeyError,
)
"""What reading a damaged file raises: flatbuffers follow its offsets unchecked."""


def _names(enumeration: Any) -> dict[int, str]:
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


_OPERATORS = _names(tflite.BuiltinOperator)
_TYPES = _names(tflite.TensorType)

load_folder("autotune.frontend.tflite", [str(Path(__file__).parent)])


def import_tflite(
    source: str | os.PathLike[str] | bytes, shapes: Mapping[str, tuple[int | str, ...]]
) -> Graph:
    """The model as a graph. `shapes`: what the inputs' shapes must be, by name. Raises ModelError
    where the file is missing or damaged, UnsupportedOpError where an operator is not known."""
    what = "the model given as bytes"
    if not isinstance(source, bytes):
        what = f"model {os.fspath(source)!r}"
        try:
            source = Path(source).read_bytes()
        except FileNotFoundError:
            raise ModelError(f"{what}: there is no such file; check the path") from None
        except OSError as error:
            raise ModelError(f"{what} cannot be read: {error.strerror}; expected a file") from None
    if source[4:8] != IDENTIFIER:
        raise ModelError(
            f"{what} is no TensorFlow Lite file: it does not say {IDENTIFIER.decode()}"
        )
    try:
        model = tflite.Model.GetRootAs(source, 0)
        if model.Version() != VERSION or model.SubgraphsLength() < 1:
            raise ValueError(f"version {model.Version()}, {model.SubgraphsLength()} graphs")
        made = _TfliteImport(model)
    except ModelError as error:
        raise type(error)(f"{what}: {error}") from None
    except _MISFITS as error:
        raise ModelError(
            f"{what} is damaged, or no TensorFlow Lite file ({error}); write it again"
        ) from error
    return made.run(what, shapes)


class _TfliteImport:
    """The import of one model: its first graph's operators, in their order."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, model.Subgraphs(0)
        name = self.graph.Name()
        self.builder = GraphBuilder(name.decode("utf-8", "replace") if name else "model")
        self.tensors = {i: self._tensor(self.graph, i) for i in range(self.graph.TensorsLength())}
        self.variables = Variables(self.builder, model)
        self.values: dict[int, str] = {}
        """By number of a tensor: its value in the graph, int8 moved up."""
        self.ends = tuple(
            tuple(self._known(int(of(i))) for i in range(count))
            for count, of in (
                (self.graph.InputsLength(), self.graph.Inputs),
                (self.graph.OutputsLength(), self.graph.Outputs),
            )
        )
        halves = [
            self.tensors[i].name
            for end in self.ends
            for i in end
            if self.graph.Tensors(i).Type() == tflite.TensorType.FLOAT16
        ]
        if halves:
            raise UnsupportedOpError(f"{halves[0]!r} is float16; expected float32 at the edges")
        self.operators = [self.graph.Operators(i) for i in range(self.graph.OperatorsLength())]

    def run(self, what: str, shapes: Mapping[str, tuple[int | str, ...]]) -> Graph:
        inputs, outputs = self.ends
        names = {self.tensors[i].name: self.tensors[i].shape for i in inputs}
        for name, shape in shapes.items():
            if names.get(name) != shape:
                known = ", ".join(f"{n} {list(s)}" for n, s in names.items())
                raise ModelError(
                    f"shape {list(shape)} is given for {name!r}, but the sizes of a .tflite file "
                    f"are its own ({known}); leave it out, or convert the model with others"
                )
        given = [(i, self._input(i)) for i in inputs]
        self.values |= {i: self._moved(name) for i, name in given}
        for number, operator in enumerate(self.operators):
            self._add(number, operator, what)
        made = []
        for i in outputs:
            if i not in self.values and self.tensors[i].data is None:
                raise ModelError(f"{what}: output {self.tensors[i].name!r} is never computed")
            made.append((self.tensors[i].name, self._output(i)))
        made += self.variables.outputs([name for name, _ in made])
        if len(dict(made)) != len(made) or not made:
            raise ModelError(f"{what} has {len(made)} outputs; expected some, of different names")
        return self.builder.finish(made)

    def _add(self, number: int, operator: Any, what: str) -> None:
        """One operator. Raises with its place."""
        where = f"{what}: operator {number}"
        try:
            name = self._operator_name(operator)
            where = f"{where} ({name})"
            if name in VARIABLE_OPERATORS:
                return self._add_variable(name, operator)
            if name not in TFLITE_IMPORTERS:
                raise UnsupportedOpError(
                    "it is not supported; replace it before the conversion, or add an importer "
                    "in autotune/frontend/tflite"
                )
            self.builder.label = f"{name} {number}"
            self._bring_constants(operator)
            context = OperatorContext(self.builder, name, operator, self.tensors, self.values)
            made = TFLITE_IMPORTERS.get(name)(context)
            self.variables.assign_kept(
                (self.tensors[i], self.values[i])
                for i in map(operator.Inputs, range(operator.InputsLength()))
                if i >= 0 and self.tensors[i].kept
            )
            results = [int(operator.Outputs(i)) for i in range(operator.OutputsLength())]
            for result, value in zip(results, (made,) if isinstance(made, str) else made,
                                     strict=True):  # fmt: skip
                self._check(result, value)
        except ModelError as error:
            raise type(error)(f"{where}: {error}") from error
        except _MISFITS as error:
            raise ModelError(
                f"{where} does not fit its tensors ({error}); convert it again"
            ) from error

    def _add_variable(self, name: str, operator: Any) -> None:
        """An operator that keeps a value, or brings it back."""
        if name == "CALL_ONCE":
            self.variables.initialize(operator, self._operator_name, self._tensor)
        elif name == "VAR_HANDLE":
            self.variables.declare(operator)
        elif name == "READ_VARIABLE":
            self._check(int(operator.Outputs(0)), self.variables.read(operator))
        else:
            self._bring_constants(operator, first=1)
            self.variables.assign(operator, self.values)

    def _operator_name(self, operator: Any) -> str:
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        builtin = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
        if builtin == tflite.BuiltinOperator.CUSTOM:
            custom = code.CustomCode()
            return f"custom {custom.decode('utf-8', 'replace') if custom else ''}"
        return _OPERATORS.get(builtin, str(builtin))

    def _bring_constants(self, operator: Any, first: int = 0) -> None:
        """Values of constants that are read for the first time, from the first input on; raises
        where an operator reads what is not computed yet."""
        for position in range(first, operator.InputsLength()):
            number = int(operator.Inputs(position))
            if number < 0 or number in self.values:
                continue
            tensor = self.tensors[self._known(number)]
            if tensor.kept:
                self.values[number] = self.variables.kept(tensor)
                continue
            if tensor.data is None:
                raise ModelError(f"input {position} ({tensor.name!r}) is not computed before it")
            data = tensor.data
            if tensor.dtype == "int8":
                data = (data.astype(np.int32) + MOVED).astype(np.uint8)
            self.values[number] = self.builder.constant(data, tensor.name)

    def _check(self, number: int, value: str) -> None:
        """A value made for a tensor: of its shape and type."""
        tensor = self.tensors[self._known(number)]
        wanted = TensorType(
            dtype="uint8" if tensor.dtype == "int8" else tensor.dtype, shape=tensor.shape
        )
        if self.builder.types[value] != wanted:
            raise ModelError(
                f"it gives {self.builder.types[value]}, and the file says {wanted}; the model is "
                "malformed, or its sizes are computed by a run"
            )
        self.values[number] = value

    def _input(self, number: int) -> str:
        tensor = self.tensors[number]
        if tensor.data is not None:
            raise ModelError(f"input {tensor.name!r} is a constant")
        return self.builder.input(tensor.name, TensorType(dtype=tensor.dtype, shape=tensor.shape))

    def _moved(self, value: str) -> str:
        """int8 as uint8, 128 more."""
        if self.builder.dtype(value) != "int8":
            return value
        self.builder.label = ""
        sign = self.builder.op("scalar", value=-MOVED, dtype="int8")
        return self.builder.op("to_uint8", self.builder.op("bit_xor", value, sign))

    def _output(self, number: int) -> str:
        """A value of its own, int8 as the file has it."""
        tensor, value = self.tensors[number], self.values.get(number)
        if value is None:
            assert tensor.data is not None
            return self.builder.op("copy", self.builder.constant(tensor.data, tensor.name))
        self.builder.label = ""
        if tensor.dtype == "int8":
            sign = self.builder.op("scalar", value=MOVED, dtype="uint8")
            return self.builder.op("to_int8", self.builder.op("bit_xor", value, sign))
        given = value in self.builder.constants or self.builder.is_input(value)
        return self.builder.op("copy", value) if given else value

    # ------------------------------------------------------------------------------------ file

    def _known(self, number: int) -> int:
        if not 0 <= number < self.graph.TensorsLength():
            raise ModelError(f"tensor {number} of {self.graph.TensorsLength()} is named")
        return number

    def _tensor(self, graph: Any, number: int) -> TfliteTensor:
        """A tensor as it is described; its data are checked against it."""
        tensor = graph.Tensors(number)
        text = tensor.Name()
        name = text.decode("utf-8", "replace") if text else f"tensor {number}"
        kind = _TYPES.get(tensor.Type(), str(tensor.Type()))
        shape = tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))
        if any(e < 0 for e in shape):
            raise ModelError(f"tensor {name!r} has shape {list(shape)}; expected known sizes")
        scales, zeros = self._steps(tensor, name)
        dtype = kind.lower()
        data = self._data(tensor, name, dtype, shape)
        if dtype == "float16":  # constants, and what is made of them alone
            dtype, data = "float32", None if data is None else data.astype(np.float32)
        return TfliteTensor(
            name=name, dtype=dtype, shape=shape, scales=scales, zeros=zeros, data=data,
            kept=bool(tensor.IsVariable()),
        )  # fmt: skip

    def _steps(self, tensor: Any, name: str) -> tuple[Array, Array]:
        """Scales and zero points; none of what is not quantized."""
        steps = tensor.Quantization()
        count = 0 if steps is None else steps.ScaleLength()
        if not count:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        scales = np.asarray(steps.ScaleAsNumpy(), np.float32)  # raises where it ends before
        zeros = np.zeros(count, np.int64)
        if steps.ZeroPointLength():
            zeros = np.asarray(steps.ZeroPointAsNumpy(), np.int64)
        if zeros.size != count:
            raise ModelError(f"tensor {name!r} has {count} scales and {zeros.size} zero points")
        return scales, zeros

    def _data(self, tensor: Any, name: str, dtype: str, shape: tuple[int, ...]) -> Array | None:
        buffer = self.model.Buffers(tensor.Buffer())
        length = buffer.DataLength()
        if buffer.Size() or not length:  # of what is computed, and of files above 2 GB
            if buffer.Size():
                raise UnsupportedOpError(f"the data of {name!r} lie behind the model's tables")
            return None
        if dtype not in (*DTYPES, "float16"):
            raise UnsupportedOpError(
                f"constant {name!r} has element type {dtype}; supported are {', '.join(DTYPES)}"
            )
        numbers = np.frombuffer(buffer.DataAsNumpy().tobytes(), dtype)
        if (sparsity := tensor.Sparsity()) is None:
            return numbers.reshape(shape)
        try:
            return dense_array(sparsity, numbers, shape)
        except ModelError as error:
            raise ModelError(f"tensor {name!r}: {error}") from None
