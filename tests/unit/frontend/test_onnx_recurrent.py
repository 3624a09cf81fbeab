"""Recurrent layers, against onnxruntime."""

from __future__ import annotations

import pytest

from tests.unit.frontend.onnx_models import check, floats, node_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN = 5


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})],
)
def test_layer(op: str, attrs: dict[str, int], direction: str, full: bool) -> None:
    ways, width = 1 + (direction == "bidirectional"), GATES[op] * HIDDEN
    feeds = {"x": floats(4, 2, 3)}
    given = [floats(ways, width, 3, seed=1), floats(ways, width, HIDDEN, seed=2)]
    if full:  # biases and initial states
        states = [floats(ways, 2, HIDDEN, seed=4 + s) for s in range(1 + (op == "LSTM"))]
        given += [floats(ways, 2 * width, seed=3), None, *states]
    model = node_model(
        op, feeds, given, outputs=2 + (op == "LSTM"), direction=direction, hidden_size=HIDDEN,
        **attrs,
    )  # fmt: skip
    check(model, feeds)
