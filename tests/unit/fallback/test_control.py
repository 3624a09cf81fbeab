"""Branches and loops that a run decides, against ONNX Runtime."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import FallbackWarning
from autotune.fallback import foreign
from autotune.fallback.model import StagedModel
from autotune.runtime import trips

Infos = Sequence[onnx.ValueInfoProto]
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.linspace(-2, 3, 6, dtype=np.float32)
node, info = helper.make_node, helper.make_tensor_value_info


def graph(nodes: Sequence[onnx.NodeProto], inputs: Infos, outputs: Infos) -> onnx.GraphProto:
    tensors = [
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.array(8, np.float32), "eight"),
    ]
    return helper.make_graph(list(nodes), "inner", list(inputs), list(outputs), tensors)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Infos, outputs: Sequence[str]
) -> onnx.ModelProto:
    made = [info(name, FLOAT, None) for name in outputs]
    whole = helper.make_graph(list(nodes), "control", list(inputs), made)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def checked(proto: onnx.ModelProto, *feeds: Mapping[str, Any], **options: Any) -> StagedModel:
    """The compiled model, whose outputs for all `feeds` are those of ONNX Runtime; twice."""
    made = autotune.compile(proto.SerializeToString(), machine="nominal", **options)
    assert isinstance(made, StagedModel)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    for each in (*feeds, *feeds):
        found, wanted = made.run(each), theirs.run(None, dict(each))
        for name, array in zip(found, wanted, strict=True):
            assert found[name].shape == np.shape(array)
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
    return made


def branches(*, nested: bool = False) -> list[onnx.NodeProto]:
    """y = 2 x where c, else the sum of x as [1, 1]; the sum again in a branch."""
    whole = graph([node("ReduceSum", ["x"], ["s"], keepdims=1), node("Unsqueeze", ["s", "one"], ["u"])], [], [info("u", FLOAT, None)])  # fmt: skip # noqa: E501
    whole.initializer.append(numpy_helper.from_array(np.array([0]), "one"))
    twice = graph([node("Mul", ["x", "two"], ["t"])], [], [info("t", FLOAT, None)])
    if nested:
        inner = node("If", ["d"], ["n"], then_branch=twice, else_branch=whole)
        twice = graph([inner], [], [info("n", FLOAT, None)])
    return [
        node("If", ["c"], ["b"], then_branch=twice, else_branch=whole),
        node("Neg", ["b"], ["y"]),
    ]


def test_branches_of_different_shapes() -> None:
    proto = model(branches(), [info("c", BOOL, ()), info("x", FLOAT, (6,))], ["y"])
    assert checked(proto, *({"c": np.array(c), "x": X} for c in (True, False)), fallback=False).own


def test_branches_within_branches() -> None:
    inputs = [info("c", BOOL, ()), info("d", BOOL, ()), info("x", FLOAT, (6,))]
    flags = [(c, d) for c in (True, False) for d in (True, False)]
    feeds = [{"c": np.array(c), "d": np.array(d), "x": X} for c, d in flags]
    checked(model(branches(nested=True), inputs, ["y"]), *feeds, fallback=False)


def test_only_one_of_two_long_branches_runs() -> None:
    """The other is not even compiled."""
    chain = [node("Sin", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"]) for i in range(20)]
    long = graph(chain, [], [info("v20", FLOAT, None)])
    short = graph([node("Neg", ["x"], ["v"])], [], [info("v", FLOAT, None)])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=short, else_branch=long)],
        [info("c", BOOL, ()), info("x", FLOAT, (6,))], ["y"],
    )  # fmt: skip
    made = checked(proto, {"c": np.array(True), "x": X})
    assert made._graph.compiled == 1


def loop(
    nodes: Sequence[onnx.NodeProto],
    gives: Sequence[str],
    *,
    states: int = 1,
    takes: Sequence[str] = ("n", ""),
) -> onnx.NodeProto:
    """A Loop whose body has the states s0, s1, ..., from x; its outputs are y0, y1, ..."""
    names = [f"s{i}" for i in range(states)]
    inputs = [info("i", INT, ()), info("c", BOOL, ()), *(info(n, FLOAT, (6,)) for n in names)]
    outputs = [info(gives[0], BOOL, ()), *(info(n, FLOAT, (6,)) for n in gives[1:])]
    body = graph(nodes, inputs, outputs)
    made = [f"y{i}" for i in range(len(gives) - 1)]
    return node("Loop", [*takes, *["x"] * states], made, body=body)


COUNT = [info("n", INT, ()), info("x", FLOAT, (6,))]
NEXT = [
    node("Cast", ["i"], ["f"], to=FLOAT), node("Add", ["s0", "f"], ["a"]),
    node("Mul", ["a", "x"], ["b"]), node("Div", ["b", "eight"], ["h"]), node("Sin", ["h"], ["t"]),
]  # fmt: skip
BODIES = {
    "state": (NEXT, ["c", "t"], 1),
    "state, and all of it": (NEXT, ["c", "t", "t", "b"], 1),
    "state as it was": (NEXT, ["c", "t", "s0"], 1),
    "two that change places": (NEXT, ["c", "s1", "t", "s1"], 2),
    "one twice": (NEXT, ["c", "t", "t"], 2),
    "one that stays": (NEXT, ["c", "s0", "t", "t"], 2),
    "unread": ([node("Neg", ["x"], ["m"])], ["c", "m", "m"], 1),
}


@pytest.mark.parametrize("case", BODIES)
def test_counts_that_a_run_knows(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, gives, states = BODIES[case]
    outputs = [f"y{i}" for i in range(len(gives) - 1)]
    proto = model([loop(nodes, gives, states=states)], COUNT, outputs)
    native = list[int]()
    run = trips.Trips.run
    monkeypatch.setattr(trips.Trips, "run", lambda *given: native.append(given[-1]) or run(*given))
    feeds = [{"n": np.array(n), "x": X} for n in (7, 1, 100, 0)]
    made = checked(proto, *feeds, fallback=False)
    assert (made._graph.compiled, native) == (1, [6, 1, 100, 7, 1, 100])


@pytest.mark.parametrize("ours", [True, False])
def test_an_interrupt_ends_a_loop_that_goes_on_for_ever(*, ours: bool) -> None:
    proto = model([loop(NEXT, ["c", "t"])], COUNT, ["y0"])
    short, long = ({"n": np.array(n), "x": X} for n in (3, 2**62))
    run = checked(proto, short).run if ours else foreign.evaluator(proto, short)[1]
    main = threading.main_thread().ident
    assert main
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (the interrupt may come before the loop)
        timer.start()
        run(long)


@pytest.mark.parametrize("takes", [("n", ""), ("", ""), ("n", "go")])
def test_conditions_that_end_a_loop(
    takes: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are collected in blocks: here of three."""
    monkeypatch.setattr(trips, "BLOCK_BYTES", 3 * X.nbytes)
    last = [*NEXT, node("Less", ["i", "most"], ["on"])]
    inputs = [*COUNT, info("most", INT, ()), info("go", BOOL, ())]
    proto = model([loop(last, ["on", "t", "b"], takes=takes)], inputs, ["y0", "y1"])
    feeds = [
        {"n": np.array(n), "x": X, "most": np.array(m), "go": np.array(n != 8)}
        for n, m in ((20, 3), (20, 11), (5, 11), (8, 1), (1, 9))
    ]
    checked(proto, *feeds, fallback=False)


def test_long_loops_are_not_unrolled() -> None:
    """Constant length; where the whole has to be one graph, they are."""
    once = loop(NEXT, ["c", "t", "b"], takes=("many", ""))
    proto = model([once], COUNT[1:], ["y0", "y1"])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(100), "many"))
    assert checked(proto, {"x": X})._graph.compiled == 1


def test_control_flow_within_a_loop() -> None:
    inner = loop(NEXT, ["c", "t"], takes=("n", ""))
    inner.attribute[0].g.input[2].name = "s9"
    inner.attribute[0].g.node[1].input[0] = "s9"
    inner.output[0] = "z"
    inner.input[2] = "s0"
    early, late = (
        graph([made], [], [info(made.output[0], FLOAT, (6,))])
        for made in (inner, node("Neg", ["s0"], ["p"]))
    )
    odd = [
        node("Greater", ["i", "n"], ["late"]),
        node("If", ["late"], ["w"], then_branch=late, else_branch=early),
    ]
    outer = loop(odd, ["c", "w", "w"], takes=("m", ""))
    proto = model([outer], [*COUNT, info("m", INT, ())], ["y0", "y1"])
    checked(proto, *({"n": np.array(2), "m": np.array(m), "x": X} for m in (1, 5)), fallback=False)


@pytest.mark.parametrize("length", [5, 60])
@pytest.mark.parametrize("back", [0, 1])
def test_scans(length: int, back: int) -> None:
    """Lengths that the compiler would have to unroll, or does not know."""
    nodes = [
        node("Div", ["s", "two"], ["d"]), node("Sin", ["d"], ["e"]),
        node("Add", ["e", "r"], ["t"]), node("Mul", ["t", "r"], ["u"]), node("Cos", ["u"], ["w"]),
    ]  # fmt: skip
    vector = [info(name, FLOAT, (4,)) for name in ("s", "r", "t", "w")]
    body = graph(nodes, vector[:2], vector[2:])
    scan = node(
        "Scan", ["h", "x"], ["end", "all"], body=body, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[back],
        scan_output_axes=[1], scan_output_directions=[1 - back],
    )  # fmt: skip
    shape: list[int | str] = [4, "T"] if length == 5 else [4, length]
    proto = model([scan], [info("h", FLOAT, (4,)), info("x", FLOAT, shape)], ["end", "all"])
    r = np.random.default_rng(3)
    feeds = [
        {"h": r.random(4, np.float32), "x": r.random((4, t), np.float32)}
        for t in ([5, 90] if length == 5 else [60])
    ]
    checked(proto, *feeds, fallback=False)


def test_state_that_grows_runs_elsewhere_and_is_said() -> None:
    """Its body would be compiled for every trip."""
    body = graph(
        [node("Identity", ["c"], ["on"]), node("Concat", ["s", "x"], ["t"], axis=0)],
        [info("i", INT, ()), info("c", BOOL, ()), info("s", FLOAT, None)],
        [info("on", BOOL, ()), info("t", FLOAT, None)],
    )
    proto = model([node("Loop", ["n", "", "x"], ["y"], body=body)], COUNT, ["y"])
    with pytest.warns(FallbackWarning, match="1 node of 'Loop' runs in onnxruntime"):
        checked(proto, {"n": np.array(12), "x": X})
