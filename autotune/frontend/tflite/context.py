"""The context of a TensorFlow Lite operator's importer, and the registry of importers.

An importer is one function: it reads the operator's tensors and options through an
`OperatorContext`, adds ops to the graph, and returns the value (or values) it made:

    @tflite_importer("RELU")
    def relu(n: OperatorContext) -> str:
        return n.op("relu", n.input(0))

Tensors of int8 are uint8 in graphs, 128 more: what instructions multiply. Only a model's edges
have the others. Those of uint8, as older converters wrote them, are what they are.
Importers raise ModelError or UnsupportedOpError with a plain message; the caller
adds the operator and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.tflite.fixed_point import quantized_multipliers
from autotune.graph.build import GraphBuilder
from autotune.registry import Registry
from autotune.types import Array

TfliteImporter = Callable[["OperatorContext"], "str | tuple[str, ...]"]
TFLITE_IMPORTERS: Registry[TfliteImporter] = Registry(
    "TensorFlow Lite operator", room="autotune.frontend.tflite.importer"
)
_PRODUCT_BITS, _DOUBLED_BITS = 31, 30
"""Bits of a fixed-point multiplier, and what a sum of 32 bits may have to be taken twice."""
MOVED = 128
"""How much more values of int8 are in graphs."""


def tflite_importer(*operators: str) -> Callable[[TfliteImporter], TfliteImporter]:
    """Register a function as the importer of some operators."""

    def register(function: TfliteImporter) -> TfliteImporter:
        for operator in operators:
            TFLITE_IMPORTERS.add(operator, function)
        return function

    return register


@dataclass(frozen=True, slots=True, kw_only=True)
class TfliteTensor:
    """A tensor of the file; number = (element - zero) * scale, one of each or one per channel."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scales: Array
    zeros: Array
    data: Array | None
    """What it holds where it is constant."""
    kept: bool = False
    """Whether it keeps its value from one run to the next."""

    @property
    def scale(self) -> float:
        """The one scale. Raises ModelError where there are others."""
        if self.scales.size != 1 or not self.scales.item() > 0:
            raise ModelError(
                f"tensor {self.name!r} has {self.scales.size} scales; expected one above 0"
            )
        return float(self.scales.item())

    @property
    def zero(self) -> int:
        """The one zero point."""
        return int(self.zeros.item()) if self.zeros.size == 1 else 0

    @property
    def moved(self) -> int:
        """How much more the graph's values are than the file's."""
        return MOVED if self.dtype == "int8" else 0

    @property
    def point(self) -> int:
        """The zero point of the graph's values."""
        return self.zero + self.moved


class OperatorContext(Assembler):
    """One operator during import: its tensors, its options, and the graph being built."""

    def __init__(
        self,
        builder: GraphBuilder,
        name: str,
        operator: Any,
        tensors: Mapping[int, TfliteTensor],
        values: dict[int, str],
    ) -> None:
        """`operator`: of the tflite package. `tensors` and `values` by number."""
        super().__init__(builder)
        self._name = name
        self._operator, self._tensors, self._values = operator, tensors, values
        self._inputs = _numbers(operator.InputsLength(), operator.Inputs)
        self._outputs = _numbers(operator.OutputsLength(), operator.Outputs)

    # ------------------------------------------------------------------------------- operands

    def is_a(self, operator: str) -> bool:
        """Whether it is that operator, where an importer has several."""
        return self._name == operator

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return len(self._inputs)

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return len(self._outputs)

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        return 0 <= position < len(self._inputs) and self._inputs[position] >= 0

    def tensor(self, position: int) -> TfliteTensor:
        """The tensor of a required input."""
        if not self.has(position):
            raise ModelError(f"input {position} is missing; the model is malformed")
        return self._tensors[self._inputs[position]]

    def result(self, position: int = 0) -> TfliteTensor:
        """The tensor of an output."""
        if position >= len(self._outputs):
            raise ModelError(f"output {position} is missing; the model is malformed")
        return self._tensors[self._outputs[position]]

    def input(self, position: int) -> str:
        """The graph's value of a required input; of int8 as uint8, 128 more."""
        self.tensor(position)
        return self._values[self._inputs[position]]

    def keep(self, position: int, value: str) -> None:
        """Give a tensor that keeps its value another one, for what reads it behind."""
        if not self.tensor(position).kept:
            raise ModelError(f"input {position} is written, and keeps no value")
        self._values[self._inputs[position]] = value

    def within(self, position: int) -> TfliteTensor:
        """A tensor that says how numbers inside of the operator count."""
        if position >= self._operator.IntermediatesLength():
            raise ModelError(f"intermediate {position} is missing; the model is malformed")
        return self._tensors[int(self._operator.Intermediates(position))]

    def array(self, position: int) -> Array:
        """The data of an input that must be constant: as the file has them, or as an operator of
        constants gave them."""
        tensor = self.tensor(position)
        if tensor.data is None:
            known = self.known(self.input(position)) if tensor.dtype != "int8" else None
            if known is not None:
                return known
            raise UnsupportedOpError(
                f"input {position} ({tensor.name!r}) is computed by the model; expected a constant"
            )
        return tensor.data

    def ints(self, position: int) -> tuple[int, ...]:
        """Constant integers."""
        return tuple(int(v) for v in self.array(position).ravel())

    def counts(self, position: int) -> Array:
        """Constant whole numbers. Raises ModelError for others."""
        array = self.array(position)
        if array.dtype.kind not in "iu":
            raise ModelError(f"input {position} is of {array.dtype}; expected whole numbers")
        return array

    def options(self, name: str) -> Any:
        """The operator's options, of a table of the tflite package; its defaults where the file
        has none."""
        kind = getattr(tflite, name)()
        table = self._operator.BuiltinOptions()
        if table is None:
            raise ModelError(f"it has no {name}; the model is malformed")
        kind.Init(table.Bytes, table.Pos)
        return kind

    # ------------------------------------------------------------------------------- integers

    def quantized(self, *positions: int, unsigned: bool = False) -> bool:
        """Whether the inputs and the output are int8 with scales, or all uint8 where `unsigned`
        bytes are known; False where all are floats. Raises UnsupportedOpError for anything
        else."""
        tensors = [self.tensor(p) for p in positions] + [self.result()]
        kinds = [t.dtype for t in tensors]
        known = ("int8", "uint8") if unsigned else ("int8",)
        alike = kinds[0] in known and len(set(kinds)) == 1
        if alike and all(t.scales.size for t in tensors):
            return True
        if all(k == "float32" for k in kinds):
            return False
        raise UnsupportedOpError(
            f"tensors of {', '.join(dict.fromkeys(kinds))} together are not supported; expected "
            "all float32, or all int8 with scales: convert the model with full integer "
            "quantization"
        )

    @property
    def steps(self) -> bool:
        """Whether an operand or a result counts in steps of a scale."""
        return bool(self._stepped())

    def plain(self) -> None:
        """Raise UnsupportedOpError where an operand or a result counts in steps of a scale."""
        for tensor in self._stepped():
            raise UnsupportedOpError(
                f"{tensor.name!r} of {tensor.dtype} with scales is not supported here; "
                "expected numbers without: leave this operator in float32 when quantizing"
            )

    def _stepped(self) -> list[TfliteTensor]:
        numbers = [self.tensor(p) for p in range(self.inputs) if self.has(p)]
        results = [self.result(p) for p in range(self.outputs)]
        return [t for t in (*numbers, *results) if t.scales.size and t.dtype != "float32"]

    def whole(self, position: int) -> str:
        """An input of bytes as int32, less its zero point."""
        tensor, value = self.tensor(position), self.cast(self.input(position), "int32")
        return self.op("sub", value, self.like(tensor.point, value))

    def scaled(self, total: str, factors: Sequence[float] | Array, rounding: str = "twice") -> str:
        """int32 times real numbers, one for all or one per channel (the last dimension), as fixed
        point."""
        return self.requantized(total, *quantized_multipliers(np.asarray(factors)), rounding)

    def scaled_sums(self, total: str, multipliers: Array, shifts: Array, most: Array) -> str:
        """int32 that is no larger than `most` times multipliers / 2**shifts, as the result. Where
        that begins at 0, all below is 0, however it is rounded."""
        bits = max(int(most.max()).bit_length(), 1)
        if self.result().point or bits > _DOUBLED_BITS or shifts.min() < _PRODUCT_BITS:
            return self.requantized(total, multipliers, shifts)
        operands = (self._parameter(a) for a in (multipliers, shifts))
        limits = {"least_shift": _PRODUCT_BITS, "bits": _DOUBLED_BITS}
        return self.op("requantize", total, *operands, rounding="up", **limits)

    def requantized(
        self, total: str, multipliers: Array, shifts: Array, rounding: str = "twice"
    ) -> str:
        """int32 times multipliers / 2**shifts."""
        operands = (self._parameter(a) for a in (multipliers, shifts))
        short = (32, 31) if rounding == "twice" else (33,)
        least = next((bits for bits in short if shifts.min() >= bits), 1)
        return self.op("requantize", total, *operands, rounding=rounding, least_shift=least)

    def ratio(self, *positions: int) -> float:
        """The scale of an input, or of the product of several, by the output's: in float32, as
        the kernels prepare most operators."""
        product = np.prod([np.float32(self.tensor(p).scale) for p in positions], dtype=np.float32)
        return float(product / np.float32(self.result().scale))

    def _parameter(self, array: Array) -> str:
        """One per channel, or one in memory: layers that differ in their numbers alone stay one
        task."""
        return self.builder.constant(array.reshape(-1).astype(np.int32))

    def rounded_away(self, x: str, most: int = 512) -> str:
        """float32 as whole numbers of at most so much, halves away from zero."""
        size, half = self.op("abs", x), self.like(0.5, x)
        # Of 0.49999997 the sum with a half would be 1.
        whole = self.op("floor", size)
        up = self.op("ge", self.op("sub", size, whole), half)
        away = self.op("where", up, self.op("add", whole, self.like(1.0, x)), whole)
        return self.op("mul", self.op("sign", x), self.op("min", away, self.like(float(most), x)))

    def as_result(self, counts: str, low: float | None = None, high: float | None = None) -> str:
        """int32 in the output's steps as its uint8: moved by the zero point, limited."""
        tensor = self.result()
        if tensor.point:
            counts = self.builder.op("add", counts, self._parameter(np.array([tensor.point])))
        least, most = (self._count(v, d) for v, d in ((low, 0), (high, 255)))
        limited = self.op("clip", counts, min=max(least, 0), max=min(most, 255))
        return self.op("to_uint8", limited)

    def _count(self, value: float | None, default: int) -> int:
        """A real limit as the output's uint8: halves away from zero, in float32."""
        if value is None:
            return default
        count = np.float32(value) / np.float32(self.result().scale)
        away = np.floor(np.abs(count) + np.float32(0.5)) * np.sign(count)
        return int(away) + self.result().point

    def activated(self, counts: str, activation: int) -> str:
        """`as_result` within a fused activation's limits."""
        return self.as_result(counts, *limits(activation))

    def float_activated(self, value: str, activation: int) -> str:
        """Floats within a fused activation's limits."""
        low, high = limits(activation)
        if low == 0.0 and high is None:
            return self.op("relu", value)
        if low is None or high is None:
            return value
        return self.op("clip", value, min=low, max=high)

    def pooled_limits(self, activation: int) -> tuple[int, int]:
        """A fused activation's limits as uint8."""
        low, high = limits(activation)
        return max(self._count(low, 0), 0), min(self._count(high, 255), 255)

    def looked_up(self, table: Array) -> str:
        """Input 0 of int8 by a table of int8 for -128, -127 and so on."""
        counts = (np.asarray(table, np.int64) + MOVED).astype(np.uint8)
        return self.op("gather", self.constant(counts), self.cast(self.input(0), "int32"), axis=0)


def limits(activation: int) -> tuple[float | None, float | None]:
    """The least and the greatest number that a fused activation gives. Raises
    UnsupportedOpError."""
    kinds = tflite.ActivationFunctionType
    known: dict[int, tuple[float | None, float | None]] = {
        kinds.NONE: (None, None), kinds.RELU: (0.0, None), kinds.RELU6: (0.0, 6.0),
        kinds.RELU_N1_TO_1: (-1.0, 1.0),
    }  # fmt: skip
    if activation not in known:
        raise UnsupportedOpError(
            f"fused activation {activation} is not supported; expected none, RELU, RELU6 or "
            "RELU_N1_TO_1"
        )
    return known[activation]


def _numbers(count: int, item: Callable[[int], int]) -> tuple[int, ...]:
    return tuple(int(item(i)) for i in range(count))
