"""A detector of speech as users have it: an If for each sample rate with weights of its own, a
convolution, an LSTM, open sizes, and a state from frame to frame."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import FeedError

FLOAT, INT, WIDTH = TensorProto.FLOAT, TensorProto.INT64, 16
FRAMES = {16000: 64, 8000: 32}
node, info = helper.make_node, helper.make_tensor_value_info


def branch(rate: int, seed: int) -> onnx.GraphProto:
    """A frame's features, a step of the LSTM, one probability for each of the batch."""
    r = np.random.default_rng(seed)
    tensors = {
        "filters": r.standard_normal((WIDTH, 1, FRAMES[rate] // 4)) / 4,
        "w": r.standard_normal((1, 4 * WIDTH, WIDTH)) / 4,
        "r": r.standard_normal((1, 4 * WIDTH, WIDTH)) / 4,
        "b": r.standard_normal((1, 8 * WIDTH)) / 4,
        "head": r.standard_normal((WIDTH, 1)),
    }
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in tensors.items()]
    numbers = {"one": [1], "zero": [0], "first": [0, 1, 2], "last": [2]}
    weights += [numpy_helper.from_array(np.array(a), n) for n, a in numbers.items()]
    stride = FRAMES[rate] // 8
    nodes = [
        node("Unsqueeze", ["x", "one"], ["signal"]),
        node("Conv", ["signal", "filters"], ["bands"], strides=[stride]),
        node("Relu", ["bands"], ["kept"]),
        node("ReduceMean", ["kept"], ["features"], axes=[2], keepdims=0),
        node("Unsqueeze", ["features", "zero"], ["row"]),
        node("Split", ["state"], ["h", "c"], axis=0),
        node("LSTM", ["row", "w", "r", "b", "", "h", "c"], ["", "hn", "cn"], hidden_size=WIDTH),
        node("Concat", ["hn", "cn"], ["next"], axis=0),
        node("Squeeze", ["hn", "zero"], ["hidden"]),
        node("MatMul", ["hidden", "head"], ["score"]),
        node("Sigmoid", ["score"], ["p"]),
    ]
    outputs = [info("p", FLOAT, None), info("next", FLOAT, None)]
    return helper.make_graph(nodes, f"at {rate}", [], outputs, weights)


def speech() -> bytes:
    inputs = [info("x", FLOAT, ["B", "N"]), info("state", FLOAT, [2, "B", WIDTH]),
              info("rate", INT, [])]  # fmt: skip
    outputs = [info("speech", FLOAT, ["B", 1]), info("next_state", FLOAT, [2, "B", WIDTH])]
    wide = numpy_helper.from_array(np.array(16000), "wide")
    nodes = [
        node("Equal", ["rate", "wide"], ["is_wide"]),
        node("If", ["is_wide"], ["speech", "next_state"],
             then_branch=branch(16000, 1), else_branch=branch(8000, 2)),
    ]  # fmt: skip
    made = helper.make_model(
        helper.make_graph(nodes, "speech", inputs, outputs, [wide]),
        opset_imports=[helper.make_opsetid("", 16)], ir_version=8,
    )  # fmt: skip
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("batch", [1, 3])
def test_frame_after_frame_as_onnx_runtime_has_them(batch: int) -> None:
    """Sessions of both rates side by side, whose calls alternate."""
    data = speech()
    theirs = onnxruntime.InferenceSession(data)
    names = [o.name for o in theirs.get_outputs()]
    r = np.random.default_rng(batch)
    with autotune.compile(data, machine="nominal", threads=1) as made:
        zeros = np.zeros((2, batch, WIDTH), np.float32)
        sessions = {n: made.session({"state": "next_state"}, {"state": zeros}) for n in FRAMES}
        states = dict.fromkeys(FRAMES, zeros)
        for _ in range(6):
            for rate, length in FRAMES.items():
                given = {"x": r.standard_normal((batch, length)).astype(np.float32),
                         "rate": np.array(rate)}  # fmt: skip
                wanted = dict(
                    zip(names, theirs.run(None, given | {"state": states[rate]}), strict=True)
                )
                states[rate] = wanted["next_state"]
                found = sessions[rate].run(given)
                np.testing.assert_allclose(found["speech"], wanted["speech"], atol=2e-6)
        for rate, session in sessions.items():
            np.testing.assert_allclose(session.state["state"], states[rate], atol=2e-6)
        assert made.notes == () or not any("runs in" in note for note in made.notes)


def test_a_state_of_open_size_is_asked_for() -> None:
    with (
        autotune.compile(speech(), machine="nominal", threads=1) as made,
        pytest.raises(FeedError, match="state 'state' is open; expected its first value"),
    ):
        made.session({"state": "next_state"})
