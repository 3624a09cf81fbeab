"""Sessions: a call goes on where the last one ended, as if the caller fed the states by hand."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import ClosedError, FeedError, UnsupportedOpError
from autotune.runtime.growing import GrowingSession

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    weights: dict[str, Any] | None = None,
) -> bytes:
    sides = ([info(n, *kind) for n, kind in side.items()] for side in (inputs, outputs))
    tensors = [numpy_helper.from_array(array, n) for n, array in (weights or {}).items()]
    made = helper.make_model(
        helper.make_graph(nodes, "state", *sides, tensors),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    return bytes(made.SerializeToString())


def recurrent(batch: int | str) -> bytes:
    """h = tanh(h + x), c = c + h, y = h c."""
    nodes = [
        node("Add", ["h", "x"], ["s"]), node("Tanh", ["s"], ["hn"]),
        node("Add", ["c", "hn"], ["cn"]), node("Mul", ["hn", "cn"], ["y"]),
    ]  # fmt: skip
    kind = (FLOAT, (batch, 8))
    return model(nodes, dict.fromkeys("hcx", kind), {"y": kind, "hn": kind, "cn": kind})


def cache() -> bytes:
    """Rows of a cache of fixed size are written where an input says; y is their sum."""
    nodes = [
        node("ScatterND", ["k", "at", "x"], ["kn"]),
        node("ReduceSum", ["kn"], ["y"], keepdims=0),
    ]
    return model(
        nodes, {"k": (FLOAT, (16, 4)), "at": (INT, (1, 1)), "x": (FLOAT, (1, 4))},
        {"y": (FLOAT, ()), "kn": (FLOAT, (16, 4))},
    )  # fmt: skip


def branching() -> bytes:
    """A state in a branch that a run decides, with another one beside it."""
    twice = helper.make_graph([node("Add", ["h", "h"], ["t"])], "t", [], [info("t", FLOAT, None)])
    less = helper.make_graph(
        [node("ReduceMean", ["h"], ["l"], keepdims=1)], "l", [], [info("l", FLOAT, None)]
    )
    nodes = [
        node("If", ["go"], ["b"], then_branch=twice, else_branch=less),
        node("Add", ["b", "x"], ["hn"]), node("Sin", ["hn"], ["y"]),
    ]  # fmt: skip
    kind = (FLOAT, (8,))
    return model(nodes, {"h": kind, "x": kind, "go": (BOOL, ())}, {"y": kind, "hn": kind})


def feeds(kind: str, i: int) -> dict[str, Any]:
    r = np.random.default_rng(i)
    if kind == "cache":
        return {"at": np.array([[i * 5 % 16]]), "x": r.random((1, 4), np.float32)}
    if kind == "branching":
        return {"x": r.random(8, np.float32), "go": np.array(i % 3 > 0)}
    return {"x": r.random((3, 8), np.float32)}


CASES = {
    "fixed": (recurrent(3), {"h": "hn", "c": "cn"}),
    "open": (recurrent("B"), {"h": "hn", "c": "cn"}),
    "part": (recurrent(3), {"c": "cn"}),
    "cache": (cache(), {"k": "kn"}),
    "branching": (branching(), {"h": "hn"}),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_session_is_what_feeding_by_hand_is(kind: str) -> None:
    data, state = CASES[kind]
    shape = {"cache": (16, 4), "branching": (8,)}.get(kind, (3, 8))
    first = {name: np.full(shape, 0.5, np.float32) for name in state}
    rest = {"h": np.ones((3, 8), np.float32)} if kind == "part" else {}
    with autotune.compile(data, machine="nominal") as made:
        begin = first if kind in ("open", "branching") else None
        session, beside = (made.session(state, begin) for _ in range(2))
        for _ in range(2):
            now = first if begin else {name: np.zeros(shape, np.float32) for name in state}
            for i in range(5):
                wanted = made.run({**feeds(kind, i), **rest, **now})
                now = {name: wanted[then] for name, then in state.items()}
                found = session.run({**feeds(kind, i), **rest})
                assert list(found) == [n for n in made.outputs if n not in state.values()]
                np.testing.assert_array_equal(found["y"], wanted["y"])
                for name, array in now.items():
                    np.testing.assert_array_equal(session.state[name], array)
                beside.run({**feeds(kind, i + 7), **rest})
            session.reset()
        session.reset(first)
        assert all(np.array_equal(session.state[name], array) for name, array in first.items())
        session.close()
        with pytest.raises(ClosedError, match="session is closed"):
            session.run(feeds(kind, 0))


def shifted() -> bytes:
    """The rows move one place on, a state that cannot be written where it is read; beside it a
    sum, and what reads all of the sum's state."""
    nodes = [
        node("Slice", ["k", "one", "five"], ["rest"]),
        node("Concat", ["rest", "x"], ["kn"], axis=0),
        node("Add", ["s", "x"], ["sn"]),
        node("MatMul", ["s", "w"], ["y"]),
    ]
    data = model(
        nodes, {"k": (FLOAT, (5, 4)), "s": (FLOAT, (1, 4)), "x": (FLOAT, (1, 4))},
        {"kn": (FLOAT, (5, 4)), "sn": (FLOAT, (1, 4)), "y": (FLOAT, (1, 4))},
    )  # fmt: skip
    made = onnx.load_from_string(data)
    numbers = {"one": np.array([1]), "five": np.array([5]), "w": np.eye(4, dtype=np.float32)[::-1]}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in numbers.items()
    )
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("data", "pairs"),
    [(cache(), {("k", "kn")}), (recurrent(3), {("h", "hn"), ("c", "cn")}), (shifted(), set())],
    ids=["cache", "recurrent", "shifted"],
)
def test_what_can_be_updated_in_place_is(data: bytes, pairs: set[Any], threads: int) -> None:
    """Each state by itself, and all of them together, as ONNX Runtime has them."""
    theirs = onnxruntime.InferenceSession(data)
    r = np.random.default_rng(3)
    with autotune.compile(data, machine="nominal", threads=threads) as made:
        first = {n: r.random(t.shape, np.float32) for n, t in made.inputs.items() if n != "at"}
        if "at" in made.inputs:
            first["at"] = np.array([[3]])
        wanted = dict(zip(made.outputs, theirs.run(list(made.outputs), first), strict=True))
        found = made.updates(first)
        assert pairs <= set(found)
        assert ("k", "kn") in pairs or ("k", "kn") not in found
        for chosen in [*([pair] for pair in found), sorted(pairs)]:
            feeds = {name: array.copy() for name, array in first.items()}
            got = made.run(feeds, out={then: feeds[name] for name, then in chosen})
            for name, array in wanted.items():
                np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


def test_a_session_keeps_a_cache_in_one_place() -> None:
    """As it is after a file, too."""
    with autotune.compile(cache(), machine="nominal") as made:
        again = pickle.loads(pickle.dumps(made))
        for one in (made, again):
            session = one.session({"k": "kn"})
            session.run(feeds("cache", 0))
            where = session.state["k"].ctypes.data
            for i in range(3):
                session.run(feeds("cache", i))
                assert session.state["k"].ctypes.data == where


def test_sessions_run_side_by_side_and_calls_of_one_take_turns() -> None:
    with autotune.compile(recurrent(3), machine="nominal") as made:
        state, calls = {"h": "hn", "c": "cn"}, 40
        one = made.session(state)
        apart = [made.session(state) for _ in range(4)]

        def work(number: int) -> None:
            for i in range(calls):
                apart[number].run(feeds("fixed", i))
                one.run({"x": np.ones((3, 8), np.float32)})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        alone, still = made.session(state), made.session(state)
        for i in range(calls):
            alone.run(feeds("fixed", i))
        for _ in range(4 * calls):
            still.run({"x": np.ones((3, 8), np.float32)})
        for name in state:
            np.testing.assert_array_equal(one.state[name], still.state[name])
            for session in apart:
                np.testing.assert_array_equal(session.state[name], alone.state[name])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_state_is_updated_where_it_lies(threads: int) -> None:
    """Also where the kernel that writes it would copy it first."""
    with autotune.compile(cache(), machine="nominal", threads=threads) as made:
        rows = np.random.default_rng(0).random((16, 4), np.float32)
        where = rows.ctypes.data
        for i in range(4):
            given = {**feeds("cache", i), "k": rows}
            wanted = made.run(given)
            found = made.update(given, {"k": "kn"}, ["y"])
            np.testing.assert_array_equal(found["y"], wanted["y"])
            np.testing.assert_array_equal(rows, wanted["kn"])
        assert rows.ctypes.data == where


def test_a_failed_call_leaves_the_state() -> None:
    with autotune.compile(recurrent(3), machine="nominal") as made:
        session = made.session({"h": "hn", "c": "cn"})
        session.run(feeds("fixed", 0))
        before = {name: array.copy() for name, array in session.state.items()}
        with pytest.raises(FeedError, match="expected shape"):
            session.run({"x": np.ones((4, 8), np.float32)})
        assert all(np.array_equal(session.state[n], array) for n, array in before.items())
        kept = session.run(feeds("fixed", 1), ["hn"])["hn"]
        session.run(feeds("fixed", 2))
        assert not np.array_equal(kept, session.state["h"])  # results are the caller's


@pytest.mark.parametrize(
    ("state", "initial", "message"),
    [
        ({}, None, "at least one"),
        ({"g": "hn"}, None, "the model has no input 'g'"),
        ({"h": "out"}, None, "the model has no output 'out'"),
        ({"h": "hn", "c": "hn"}, None, "named for two inputs"),
        ({"h": "hn"}, {"c": np.ones(3)}, "'c' is no state"),
        ("h", None, "state must be a dict"),
    ],
)
def test_wrong_states_are_one_line(state: Any, initial: Any, message: str) -> None:
    with autotune.compile(recurrent(3), machine="nominal") as made:
        with pytest.raises(FeedError, match=message):
            made.session(state, initial)
        with pytest.raises(FeedError, match="kept by the session"):
            made.session({"h": "hn"}).run({"h": np.ones((3, 8)), **feeds("fixed", 0)})


@pytest.mark.parametrize("turned", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_decoder_grows(turned: bool) -> None:
    """Prompts of several lengths, then a token at a time, past two capacities."""
    pytest.importorskip("torch")
    from tests.decoders import written

    data = written(turned=turned)
    theirs = onnxruntime.InferenceSession(data)
    names = [o.name for o in theirs.get_outputs()]
    made = autotune.compile(data, machine="nominal", threads=1)
    state = {f"past_{i}": f"present_{i}" for i in range(4)}
    r = np.random.default_rng(1)

    def given(ids: np.ndarray[Any, Any], length: int) -> dict[str, Any]:
        mask = np.ones((1, length + ids.shape[1]), np.float32)
        mask[0, 3:5] = 0
        return {"ids": ids, "mask": mask} if turned else {"ids": ids}

    with made, made.session(state, capacity=16) as session:  # type: ignore[call-arg]
        assert isinstance(session, GrowingSession)
        for steps in ([11, 1, 1, 9, *[1] * 14], [1, 1, 17, 1]):
            past = {n: np.zeros((1, 2 if turned else 4, 0, 16), np.float32) for n in state}
            for step in steps:
                feed = given(r.integers(0, 50, (1, step)), session.length)
                wanted = dict(zip(names, theirs.run(None, feed | past), strict=True))
                past = {n: wanted[then] for n, then in state.items()}
                found = session.run(feed)
                np.testing.assert_allclose(found["logits"], wanted["logits"], rtol=2e-4, atol=2e-4)
            for name, array in session.state.items():
                np.testing.assert_allclose(array, past[name], rtol=1e-4, atol=1e-4)
            session.reset()
        session.reset(past)
        assert (session.length, session.capacity) == (20, 32)
        if turned:
            with pytest.raises(FeedError, match="20 rows are filled, and 1 come to them"):
                session.run(given(np.zeros((1, 1), np.int64), 3))


def test_softmaxes_with_zeros_in_place_of_nan_are_understood() -> None:
    """As PyTorch's exporter writes attention with a mask: rows that mean nothing stay zeros."""
    nodes = [
        node("Concat", ["k", "x"], ["kn"], axis=0),
        node("MatMul", ["kn", "w"], ["scores"]),
        node("Softmax", ["scores"], ["s"], axis=0),
        node("IsNaN", ["s"], ["nan"]),
        node("Where", ["nan", "zero", "s"], ["p"]),
        node("Transpose", ["p"], ["t"], perm=[1, 0]),
        node("MatMul", ["t", "kn"], ["y"]),
    ]
    rng = np.random.default_rng(8)
    weights = {"w": rng.standard_normal((4, 1)).astype(np.float32), "zero": np.zeros((), "f4")}
    data = model(
        nodes, {"k": (FLOAT, ("P", 4)), "x": (FLOAT, (1, 4))},
        {"y": (FLOAT, (1, 4)), "kn": (FLOAT, ("Q", 4))}, weights,
    )  # fmt: skip
    with autotune.compile(data, machine="nominal") as made, made.session({"k": "kn"}) as session:
        assert isinstance(session, GrowingSession)
        rows = np.zeros((0, 4), np.float64)
        for _ in range(5):
            x = rng.standard_normal((1, 4)).astype(np.float32)
            rows = np.concatenate([rows, x])
            share = np.exp(rows @ weights["w"])
            want = (share / share.sum()).T @ rows
            np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def means() -> bytes:
    """A mean over the rows: those that mean nothing would count."""
    nodes = [
        node("Concat", ["k", "x"], ["kn"], axis=0),
        node("ReduceMean", ["kn"], ["y"], axes=[0]),
    ]
    return model(
        nodes, {"k": (FLOAT, ("P", 4)), "x": (FLOAT, (1, 4))},
        {"y": (FLOAT, (1, 4)), "kn": (FLOAT, ("Q", 4))},
    )  # fmt: skip


def test_growth_that_is_not_understood_is_the_one_programs() -> None:
    rows = np.random.default_rng(9).standard_normal((6, 4)).astype(np.float32)
    with autotune.compile(means(), machine="nominal", ranges={"P": (0, 50)}) as made:
        session = made.session({"k": "kn"})
        for _ in range(2):
            for end in range(1, 7):
                found = session.run({"x": rows[end - 1 : end]})
                np.testing.assert_allclose(found["y"][0], rows[:end].mean(0), rtol=1e-5, atol=1e-6)
            assert session.state["k"].shape == (6, 4)
            session.reset()


def test_growth_that_is_not_understood_is_refused() -> None:
    with autotune.compile(means(), machine="nominal", ranges={"P": (1, 50)}) as made:
        session = made.session({"k": "kn"})
        with pytest.raises(UnsupportedOpError, match=r"growth is not understood: .*mean nothing"):
            session.run({"x": np.ones((1, 4), np.float32)})
