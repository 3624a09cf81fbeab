"""An LSTM of int8 whose cell and gates are int16, as TensorFlow Lite's kernel computes it.

Gates count in steps of 2**-12, their functions' results in steps of 2**-15. Both functions are
tables of all 65536 numbers, computed here in the kernel's fixed point.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite import short_functions
from autotune.frontend.tflite.context import MOVED, OperatorContext
from autotune.frontend.tflite.gates import CELL, FORGET, INPUT, OUTPUT, LstmGate, gates_of
from autotune.types import Array

_HIDDEN, _CELL, _PROJECTION, _PROJECTION_BIAS = 18, 19, 16, 17
_INSIDE = 4
"""The intermediate tensor that the hidden numbers count as."""
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_GATE_STEP, _SHARE_STEP = 2.0**-12, 2.0**-15


def rows_of(n: OperatorContext, values: str, step: int, batch: int) -> str:
    """A step's rows of all steps'."""
    size = n.shape(values)[1]
    return n.op(
        "slice", values, starts=(step * batch, 0), stops=((step + 1) * batch, size), steps=(1, 1)
    )


def run(
    n: OperatorContext, rows: str, steps: int, clips: tuple[float, float]
) -> tuple[str, str, list[str]]:
    """(the last output, the last cell, every output)."""
    if n.tensor(_CELL).dtype != "int16" or n.tensor(2).dtype != "int8":
        raise UnsupportedOpError("an LSTM of bytes must have a cell of int16, weights of int8")
    layer = _Layer(n, clips)
    given = {name: layer.given(gate, rows) for name, gate in layer.gates.items()}
    hidden, cell, made = n.input(_HIDDEN), n.cast(n.input(_CELL), "int32"), []
    batch = n.shape(hidden)[0]
    for step in range(steps):
        now = {name: rows_of(n, value, step, batch) for name, value in given.items()}
        hidden, cell = layer.step(now, hidden, cell)
        made.append(hidden)
    return hidden, n.cast(cell, "int16"), made


class _Layer:
    """The numbers of one layer, and its step."""

    def __init__(self, n: OperatorContext, clips: tuple[float, float]) -> None:
        self.n, self.gates = n, gates_of(n)
        self.bits = _power_of_two(n.tensor(_CELL).scale)
        """The cell's step is 2**bits."""
        self.cell_clip = _count(clips[0], n.tensor(_CELL).scale, _HIGH)
        self.output_clip = _count(clips[1], n.result().scale, 127)
        self.sigmoid = n.constant(short_functions.logistics(), "int16")
        self.tanh = n.constant(short_functions.tanhs(3), "int16")
        self.cell_tanh = n.constant(short_functions.tanhs(15 + self.bits), "int16")

    def given(self, gate: LstmGate, rows: str) -> str:
        """A gate's part by the inputs of all steps."""
        bias = self.n.counts(gate.bias) if self.n.has(gate.bias) else None
        return _short(self.n, self._product(rows, 0, gate.weights, _GATE_STEP, bias))

    def step(self, given: dict[str, str], hidden: str, cell: str) -> tuple[str, str]:
        """The states behind a step."""
        n = self.n
        kept = self._gate(FORGET, given, hidden, cell)
        fresh = (
            self._gate(INPUT, given, hidden, cell)
            if INPUT in self.gates
            else n.op("sub", n.like(_HIGH, kept), kept)
        )
        wanted = self._gate(CELL, given, hidden, cell)
        old = _divided(n, n.op("mul", kept, cell), 15)
        new = _divided(n, n.op("mul", fresh, wanted), 30 + self.bits)
        cell = _short(n, n.op("add", _short(n, old), _short(n, new)))
        if self.cell_clip:
            cell = n.op("clip", cell, min=-self.cell_clip, max=self.cell_clip)
        shown = self._gate(OUTPUT, given, hidden, cell)
        return self._hidden(n.op("mul", shown, _looked_up(n, self.cell_tanh, cell))), cell

    def _gate(self, name: str, given: dict[str, str], hidden: str, cell: str) -> str:
        n, gate = self.n, self.gates[name]
        by_state = self._product(hidden, _HIDDEN, gate.recurrent, _GATE_STEP, None)
        total = _short(n, n.op("add", by_state, given[name]))
        if n.has(gate.peephole):
            seen = n.op("mul", cell, n.constant(n.array(gate.peephole), "int32"))
            scale = n.tensor(gate.peephole).scale * 2.0**self.bits / _GATE_STEP
            total = _short(n, n.op("add", total, n.scaled(seen, [scale])))
        return _looked_up(n, self.tanh if name == CELL else self.sigmoid, total)

    def _product(self, rows: str, data: int, weights: int, step: float, bias: Array | None) -> str:
        """Rows that count as input `data` does by weights, in such steps."""
        n, tensor = self.n, self.n.tensor(data)
        scale = n.tensor(weights).scale * tensor.scale / step
        return self._scaled(rows, tensor.point, weights, scale, bias)

    def _scaled(
        self, rows: str, point: int, weights: int, scale: float, bias: Array | None
    ) -> str:
        n, columns = self.n, np.ascontiguousarray(self.n.array(weights).T)
        total = n.op("matmul", rows, n.constant(columns))
        more = -point * columns.astype(np.int64).sum(axis=0)
        more = more if bias is None else more + bias
        return n.scaled(n.op("add", total, n.constant(more, "int32")), [scale])

    def _hidden(self, product: str) -> str:
        """The output's bytes of a gate by the tanh of the cell."""
        n = self.n
        inside = n.within(_INSIDE)
        bytes_ = n.scaled(product, [_SHARE_STEP / inside.scale * _SHARE_STEP])
        bytes_ = _byte(n, n.op("add", bytes_, n.like(inside.point, bytes_)))
        if not n.has(_PROJECTION):
            return bytes_
        scale = n.tensor(_PROJECTION).scale * inside.scale / n.result().scale
        bias = n.counts(_PROJECTION_BIAS) if n.has(_PROJECTION_BIAS) else None
        y = self._scaled(bytes_, inside.point, _PROJECTION, scale, bias)
        y = n.op("add", y, n.like(n.result().point, y))
        y = n.op("clip", y, min=0, max=255)
        if self.output_clip:
            low, high = MOVED - self.output_clip, MOVED + self.output_clip
            y = n.op("clip", y, min=low, max=high)
        return n.op("to_uint8", y)


def _power_of_two(scale: float) -> int:
    part, exponent = np.frexp(scale)
    if part != 0.5:
        raise UnsupportedOpError(f"the cell's scale {scale} is no power of two")
    return int(exponent) - 1


def _count(real: float, scale: float, most: int) -> int:
    """A limit in steps, 0: there is none."""
    return int(min(real / scale, most)) if real > 0 else 0


def _short(n: OperatorContext, x: str) -> str:
    return n.op("clip", x, min=_LOW, max=_HIGH)


def _byte(n: OperatorContext, x: str) -> str:
    return n.op("to_uint8", n.op("clip", x, min=0, max=255))


def _divided(n: OperatorContext, x: str, bits: int) -> str:
    """x / 2**bits, halves away from zero."""
    half = n.like(1 << (bits - 1), x)
    sign = n.op("shift_right", x, n.like(31, x))
    return n.op("shift_right", n.op("add", n.op("add", x, sign), half), n.like(bits, x))


def _looked_up(n: OperatorContext, table: str, x: str) -> str:
    """A table of all numbers of 16 bits, as int32."""
    at = n.op("add", x, n.like(1 << 15, x))
    return n.cast(n.op("gather", table, at, axis=0), "int32")
