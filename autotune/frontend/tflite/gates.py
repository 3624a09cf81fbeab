"""The gates of TensorFlow Lite's LSTM: which inputs of the operator each has."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ModelError
from autotune.frontend.tflite.context import OperatorContext

INPUT, FORGET, CELL, OUTPUT = "input", "forget", "cell", "output"
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmGate:
    """Positions of what makes one."""

    weights: int
    recurrent: int
    bias: int
    peephole: int


_ALL = {
    INPUT: LstmGate(weights=1, recurrent=5, bias=12, peephole=9),
    FORGET: LstmGate(weights=2, recurrent=6, bias=13, peephole=10),
    CELL: LstmGate(weights=3, recurrent=7, bias=14, peephole=_NONE),
    OUTPUT: LstmGate(weights=4, recurrent=8, bias=15, peephole=11),
}


def gates_of(n: OperatorContext) -> dict[str, LstmGate]:
    """The gates by name; without one for the input where it is what the forget gate leaves."""
    found = {name: gate for name, gate in _ALL.items() if n.has(gate.weights)}
    if set(_ALL) - set(found) - {INPUT} or any(not n.has(g.recurrent) for g in found.values()):
        raise ModelError("weights of gates are missing")
    return found
