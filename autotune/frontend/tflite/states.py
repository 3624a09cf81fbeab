"""Variables of a TensorFlow Lite model: values that it keeps from one run to the next.

A graph keeps nothing: a variable becomes an input of its name and an output `NAME_next`, which is
fed to the next run (a session does that). Both are of the file's type and hold what the variable
differs in (by exclusive or) from its initial value: zeros before the first run, whatever the
initial value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tflite

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import MOST_MADE
from autotune.frontend.tflite.context import MOVED, TfliteTensor
from autotune.graph.build import GraphBuilder
from autotune.types import DTYPES, Array, TensorType

NEXT = "_next"
"""Behind a variable's name: the output that is its value for the next run."""
VARIABLE_OPERATORS = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")


class Variables:
    """The variables of one model, while its operators are added in their order."""

    def __init__(self, builder: GraphBuilder, model: Any) -> None:
        self._builder, self._model = builder, model
        self._names: dict[int, str] = {}
        """Names of handles, by number of their tensors."""
        self._initial: dict[str, Array] = {}
        """By variable, as the file has it."""
        self._masks: dict[str, str | None] = {}
        """By variable that is an input: what it is told apart by from the graph's values."""
        self._values: dict[str, str] = {}

    def initialize(self, operator: Any, name_of: Callable[[Any], str], tensor_of: Any) -> None:
        """Reads initial values out of a CALL_ONCE's graph. `name_of`: an operator's name;
        `tensor_of`: a tensor as it is described, of a graph and a number."""
        index = _options(operator, tflite.CallOnceOptions()).InitSubgraphIndex()
        if not 0 <= index < self._model.SubgraphsLength():
            raise ModelError(f"graph {index} of {self._model.SubgraphsLength()} is named")
        graph, names = self._model.Subgraphs(index), {}
        for each in (graph.Operators(i) for i in range(graph.OperatorsLength())):
            if name_of(each) == "VAR_HANDLE":
                names[int(each.Outputs(0))] = _shared_name(each)
                continue
            tensor = tensor_of(graph, int(each.Inputs(1))) if each.InputsLength() > 1 else None
            if name_of(each) != "ASSIGN_VARIABLE" or tensor is None or tensor.data is None:
                raise UnsupportedOpError(
                    f"initial values are computed ({name_of(each)}); expected constants"
                )
            self._initial[names[int(each.Inputs(0))]] = tensor.data

    def kept(self, tensor: TfliteTensor) -> str:
        """The value of a tensor that keeps it, when it is read for the first time: bytes begin
        with their zero point, others with zeros."""
        if tensor.name in self._initial:
            raise ModelError(f"{tensor.name!r} names two variables; rename one")
        if math.prod(tensor.shape) > MOST_MADE or tensor.dtype not in DTYPES:
            raise ModelError(
                f"{tensor.name!r} keeps {list(tensor.shape)} {tensor.dtype}; expected less, of "
                "known types"
            )
        point = tensor.zero if tensor.dtype == "int8" else 0
        self._initial[tensor.name] = np.full(tensor.shape, point, tensor.dtype)
        self._input(tensor.name)
        return self._values[tensor.name]

    def assign_kept(self, values: Iterable[tuple[TfliteTensor, str]]) -> None:
        """What such tensors are behind an operator."""
        self._values |= {tensor.name: value for tensor, value in values}

    def declare(self, operator: Any) -> None:
        """A VAR_HANDLE: an input where there is an initial value."""
        name = _shared_name(operator)
        self._names[int(operator.Outputs(0))] = name
        if name in self._initial and name not in self._masks:
            self._input(name)

    def _input(self, name: str) -> None:
        initial = self._initial[name]
        if initial.dtype.kind not in "iu" and initial.any():
            raise UnsupportedOpError(
                f"variable {name!r} of {initial.dtype} begins with other numbers than zeros"
            )
        self._builder.label = ""
        value = self._builder.input(
            name, TensorType(dtype=initial.dtype.name, shape=initial.shape)
        )
        self._masks[name] = mask = self._mask(initial)
        value = self._builder.op("to_uint8", value) if initial.dtype == np.int8 else value
        self._values[name] = value if mask is None else self._builder.op("bit_xor", value, mask)

    def _mask(self, initial: Array) -> str | None:
        """What a variable's initial value is in the graph, None of zeros."""
        held = initial.view(np.uint8) ^ np.uint8(MOVED) if initial.dtype == np.int8 else initial
        if not held.any():
            return None
        if (held == held.flat[0]).all():
            return self._builder.op("scalar", value=held.flat[0].item(), dtype=held.dtype.name)
        return self._builder.constant(held)

    def read(self, operator: Any) -> str:
        """READ_VARIABLE: the value in the graph."""
        name = self._names[int(operator.Inputs(0))]
        if name not in self._values:
            raise ModelError(f"variable {name!r} is read before it has a value")
        return self._values[name]

    def assign(self, operator: Any, values: Mapping[int, str]) -> None:
        """ASSIGN_VARIABLE."""
        name = self._names[int(operator.Inputs(0))]
        self._values[name] = values[int(operator.Inputs(1))]

    def outputs(self, taken: Collection[str]) -> list[tuple[str, str]]:
        """(name, value) of the variables for the next run; `taken`: names of other outputs."""
        made = []
        for name, mask in self._masks.items():
            if f"{name}{NEXT}" in taken:
                raise ModelError(f"{name}{NEXT} is the name of an output; rename it")
            value = self._values[name]
            wanted = TensorType(dtype=self._initial[name].dtype.name,
                                shape=self._initial[name].shape)  # fmt: skip
            value = value if mask is None else self._builder.op("bit_xor", value, mask)
            if wanted.dtype == "int8":
                value = self._builder.op("to_int8", value)
            elif mask is None:
                value = self._builder.op("copy", value)
            if self._builder.types[value] != wanted:
                raise ModelError(
                    f"variable {name!r} becomes {self._builder.types[value]}; expected {wanted}"
                )
            made.append((f"{name}{NEXT}", value))
        return made


def _options(operator: Any, kind: Any) -> Any:
    table = operator.BuiltinOptions()
    if table is None:
        raise ModelError("it has no options; the model is malformed")
    kind.Init(table.Bytes, table.Pos)
    return kind


def _shared_name(operator: Any) -> str:
    options = _options(operator, tflite.VarHandleOptions())
    parts = (options.Container(), options.SharedName())
    return "/".join(p.decode("utf-8", "replace") for p in parts if p) or "variable"
