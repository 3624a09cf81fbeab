"""TensorFlow Lite importers: recurrent layers, their steps one after the other.

The states between runs are tensors that keep their values, which become inputs and outputs of the
model (`states.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import tflite

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.tflite import byte_lstm
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.gates import CELL, FORGET, INPUT, OUTPUT, LstmGate, gates_of

_HIDDEN, _CELL = 18, 19
"""Inputs that are the states."""
_PROJECTION, _PROJECTION_BIAS = 16, 17
_NORMS = range(20, 24)


@tflite_importer("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(n: OperatorContext) -> str:
    options = n.options("UnidirectionalSequenceLSTMOptions")
    if options.FusedActivationFunction() != tflite.ActivationFunctionType.TANH:
        raise UnsupportedOpError("an LSTM of another activation than tanh is not supported")
    if options.DiagonalRecurrentTensors() or any(n.has(p) for p in _NORMS):
        raise UnsupportedOpError(
            "an LSTM with normalized gates or diagonal weights is not supported"
        )
    clips = float(options.CellClip()), float(options.ProjClip())
    rows, steps = _steps(n, time_major=bool(options.TimeMajor()))
    if n.tensor(0).dtype == "int8":
        hidden, cell, made = byte_lstm.run(n, rows, steps, clips)
    else:
        hidden, cell, made = _run(n, rows, steps, clips)
    n.keep(_HIDDEN, hidden)
    n.keep(_CELL, cell)
    return _joined(n, made, time_major=bool(options.TimeMajor()))


def _steps(n: OperatorContext, *, time_major: bool) -> tuple[str, int]:
    """(all steps' rows, one step's behind the other's, how many steps)."""
    x = n.input(0)
    if n.rank(x) != 3:
        raise UnsupportedOpError(f"an LSTM of an input of {n.rank(x)} dimensions")
    batches = {n.shape(n.input(p))[0] for p in (_HIDDEN, _CELL)}
    if n.result().shape[:2] != n.shape(x)[:2] or batches != {n.shape(x)[1 if time_major else 0]}:
        raise ModelError(f"states or a result that do not fit an input of {list(n.shape(x))}")
    ordered = x if time_major else n.transpose(x, (1, 0, 2))
    steps, batch, inner = n.shape(ordered)
    return n.reshape(ordered, (steps * batch, inner)), steps


def _joined(n: OperatorContext, made: Sequence[str], *, time_major: bool) -> str:
    """The steps' results in the output's order."""
    batch, size = n.shape(made[0])
    axis = 0 if time_major else 1
    shape = (1, batch, size) if time_major else (batch, 1, size)
    parts = [n.reshape(value, shape) for value in made]
    return n.op("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def _run(
    n: OperatorContext, rows: str, steps: int, clips: tuple[float, float]
) -> tuple[str, str, list[str]]:
    """(the last output, the last cell, every output) of floats."""
    if n.tensor(2).dtype != "float32" or n.tensor(0).dtype != "float32":
        raise UnsupportedOpError(
            f"an LSTM of {n.tensor(0).dtype} by {n.tensor(2).dtype} is not supported; expected "
            "float32, or int8 with scales"
        )
    gates, hidden, cell = gates_of(n), n.input(_HIDDEN), n.input(_CELL)
    given = {name: _given(n, gate, rows) for name, gate in gates.items()}
    turned = {name: n.transpose(n.input(g.recurrent), (1, 0)) for name, g in gates.items()}
    batch, made = n.shape(hidden)[0], []
    for step in range(steps):
        sums = {
            name: n.op("add", byte_lstm.rows_of(n, given[name], step, batch),
                       n.op("matmul", hidden, turned[name]))
            for name in gates
        }  # fmt: skip
        kept = n.op("sigmoid", _peeped(n, gates[FORGET], sums[FORGET], cell))
        if INPUT in gates:
            fresh = n.op("sigmoid", _peeped(n, gates[INPUT], sums[INPUT], cell))
        else:
            fresh = n.op("sub", n.like(1.0, kept), kept)
        fresh = n.op("mul", fresh, n.op("tanh", sums[CELL]))
        cell = _clipped(n, n.op("add", n.op("mul", kept, cell), fresh), clips[0])
        shown = n.op("sigmoid", _peeped(n, gates[OUTPUT], sums[OUTPUT], cell))
        hidden = _projected(n, n.op("mul", shown, n.op("tanh", cell)), clips[1])
        made.append(hidden)
    return hidden, cell, made


def _given(n: OperatorContext, gate: LstmGate, rows: str) -> str:
    """A gate's part by the inputs of all steps."""
    y = n.op("matmul", rows, n.transpose(n.input(gate.weights), (1, 0)))
    return n.op("add", y, n.input(gate.bias)) if n.has(gate.bias) else y


def _peeped(n: OperatorContext, gate: LstmGate, total: str, cell: str) -> str:
    if not n.has(gate.peephole):
        return total
    return n.op("add", total, n.op("mul", cell, n.input(gate.peephole)))


def _projected(n: OperatorContext, hidden: str, clip: float) -> str:
    if not n.has(_PROJECTION):
        return hidden
    y = n.op("matmul", hidden, n.transpose(n.input(_PROJECTION), (1, 0)))
    y = n.op("add", y, n.input(_PROJECTION_BIAS)) if n.has(_PROJECTION_BIAS) else y
    return _clipped(n, y, clip)


def _clipped(n: OperatorContext, x: str, most: float) -> str:
    return n.op("clip", x, min=-most, max=most) if most > 0 else x
