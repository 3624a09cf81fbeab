"""TensorFlow Lite's LSTM: floats, and bytes with a cell of int16, over runs that go on where the
one before ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError
from autotune.frontend import load_model
from autotune.graph.interp import run_graph
from autotune.types import Array
from tests.tflite_models import RNG, Operator, Tensor, constant, f, floats, q, tflite_bytes

BATCH, STEPS, WIDE, CELLS = 2, 4, 6, 5
TANH = 4


def options(**about: Any) -> tuple[str, dict[str, Any]]:
    return "UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": TANH, **about}


def float_layer(
    *, cifg: bool, peepholes: bool, projected: int = 0, time_major: bool = False, **about: Any
) -> bytes:
    outputs = projected or CELLS
    order = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    x, y = f(*order, WIDE), f(*order, outputs)
    states = [Tensor(shape=(BATCH, e), dtype="float32", kept=True) for e in (outputs, CELLS)]
    gates = [not cifg, True, True, True]
    inputs: list[Tensor | None] = [x]
    inputs += [floats(CELLS, WIDE) if there else None for there in gates]
    inputs += [floats(CELLS, outputs) if there else None for there in gates]
    inputs += [floats(CELLS) if peepholes and there else None for there in (not cifg, True, True)]
    inputs += [floats(CELLS) if there else None for there in gates]
    inputs += [floats(projected, CELLS), None] if projected else [None, None]
    inputs += [*states, None, None, None, None]
    made = Operator(name="UNIDIRECTIONAL_SEQUENCE_LSTM", inputs=inputs, outputs=[y],
                    options=options(timeMajor=time_major, **about))  # fmt: skip
    return tflite_bytes([made], [x], [y])


def byte_layer(
    *, cifg: bool = False, peepholes: bool = False, projected: int = 0, cell_bits: int = -11,
    **about: Any,
) -> bytes:  # fmt: skip
    outputs = projected or CELLS
    x, y = q(BATCH, STEPS, WIDE, scale=0.03, zero=-5), q(BATCH, STEPS, outputs, scale=1 / 128)
    inside = (
        q(BATCH, CELLS, scale=1 / 120, zero=4) if projected else q(BATCH, CELLS, scale=1 / 128)
    )
    hidden = Tensor(shape=(BATCH, outputs), scale=1 / 128, zero=3, kept=True)
    cell = Tensor(shape=(BATCH, CELLS), dtype="int16", scale=2.0**cell_bits, kept=True)
    gates = [not cifg, True, True, True]

    def matrix(*shape: int) -> Tensor:
        return constant(
            RNG.integers(-127, 128, shape), "int8", scale=float(RNG.uniform(0.005, 0.02))
        )

    def row(count: int) -> Tensor:
        return constant(RNG.integers(-3000, 3000, count))

    def hole() -> Tensor:
        return constant(RNG.integers(-(2**15), 2**15, CELLS), "int16", scale=3e-5)

    inputs: list[Tensor | None] = [x]
    inputs += [matrix(CELLS, WIDE) if there else None for there in gates]
    inputs += [matrix(CELLS, outputs) if there else None for there in gates]
    inputs += [hole() if peepholes and there else None for there in (not cifg, True, True)]
    inputs += [row(CELLS) if there else None for there in gates]
    inputs += [matrix(projected, CELLS), row(projected)] if projected else [None, None]
    inputs += [hidden, cell, None, None, None, None]
    within = [*(Tensor(shape=(), dtype="int16", scale=2.0**-12) for _ in range(4)), inside]
    made = Operator(name="UNIDIRECTIONAL_SEQUENCE_LSTM", inputs=inputs, outputs=[y],
                    options=options(**about), within=within)  # fmt: skip
    return tflite_bytes([made], [x], [y])


def judged_runs(model: bytes, runs: list[Array]) -> list[Array]:
    """The outputs of one run after the other."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    judge = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    judge.allocate_tensors()
    made = []
    for array in runs:
        judge.set_tensor(judge.get_input_details()[0]["index"], array)
        judge.invoke()
        made.append(judge.get_tensor(judge.get_output_details()[0]["index"]))
    return made


def own_runs(model: bytes, runs: list[Array]) -> list[Array]:
    """The same by the graph; states begin as zeros."""
    graph = load_model(model)
    fed, *kept = graph.inputs
    states = {name: np.zeros(type_.shape, type_.dtype) for name, type_ in kept}
    made = []
    for array in runs:
        got = run_graph(graph, {fed[0]: array, **states})
        states = {name: got[f"{name}_next"] for name in states}
        made.append(got[graph.outputs[0][0]])
    return made


@pytest.mark.parametrize(
    "about",
    [
        {"cifg": False, "peepholes": False}, {"cifg": True, "peepholes": True},
        {"cifg": False, "peepholes": True, "projected": 3, "time_major": True},
        {"cifg": False, "peepholes": False, "projected": 3, "cellClip": 0.7, "projClip": 0.4},
    ],
)  # fmt: skip
def test_layers_of_floats(about: dict[str, Any]) -> None:
    model = float_layer(**about)
    order = (STEPS, BATCH) if about.get("time_major") else (BATCH, STEPS)
    runs = [RNG.standard_normal((*order, WIDE)).astype(np.float32) for _ in range(3)]
    for got, want in zip(own_runs(model, runs), judged_runs(model, runs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "about",
    [
        {}, {"cell_bits": -12}, {"cell_bits": -13}, {"cifg": True}, {"peepholes": True},
        {"projected": 3}, {"projected": 4, "cellClip": 0.9, "projClip": 0.3},
    ],
)  # fmt: skip
def test_layers_of_bytes(about: dict[str, Any]) -> None:
    model = byte_layer(**about)
    runs = [RNG.integers(-128, 128, (BATCH, STEPS, WIDE)).astype(np.int8) for _ in range(20)]
    for got, want in zip(own_runs(model, runs), judged_runs(model, runs), strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


def test_a_compiled_layer_of_bytes_goes_on_where_it_ended() -> None:
    model = byte_layer()
    runs = [RNG.integers(-128, 128, (BATCH, STEPS, WIDE)).astype(np.int8) for _ in range(3)]
    compiled = autotune.compile(model, threads=1, machine="nominal")
    (fed, *kept), made = load_model(model).inputs, judged_runs(model, runs)
    states = {name: np.zeros(type_.shape, type_.dtype) for name, type_ in kept}
    for array, want in zip(runs, made, strict=True):
        got = compiled.run({fed[0]: array, **states})
        states = {name: got[f"{name}_next"] for name in states}
        np.testing.assert_array_equal(next(iter(got.values())), want, strict=True)


def test_an_output_of_other_steps_is_refused_before_any_is_added() -> None:
    x, y = f(BATCH, 1 << 30, WIDE), f(BATCH, STEPS, CELLS)
    states = [Tensor(shape=(BATCH, CELLS), dtype="float32", kept=True) for _ in range(2)]
    shapes = [(CELLS, WIDE)] * 4 + [(CELLS, CELLS)] * 4
    matrices, rows = [floats(*s) for s in shapes], [floats(CELLS) for _ in range(4)]
    inputs = [x, *matrices, None, None, None, *rows, None, None, *states]
    made = Operator(name="UNIDIRECTIONAL_SEQUENCE_LSTM", inputs=inputs, outputs=[y],
                    options=options())  # fmt: skip
    with pytest.raises(ModelError, match="do not fit an input of"):
        load_model(tflite_bytes([made], [x], [y]))
