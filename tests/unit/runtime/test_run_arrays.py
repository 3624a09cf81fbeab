"""What `run` takes for an input, by numpy's rules, and where it puts outputs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autotune.errors import FeedError
from autotune.graph.feeds import as_array
from autotune.runtime.model import CompiledModel
from autotune.types import Array
from tests.unit.runtime import fakes

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y, T = X * 3 + 1, X * 3


@pytest.fixture
def library() -> fakes.CallbackLibrary:
    return fakes.CallbackLibrary()


@pytest.fixture
def model(library: fakes.CallbackLibrary) -> CompiledModel:
    return CompiledModel(fakes.image(), library)


class Tensor:
    """What other packages have: an array by `__array__`."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array


class Unreadable:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise TypeError("can't convert device tensor to numpy; call cpu() first")


@pytest.mark.parametrize(
    "feed",
    [
        X.tolist(),
        tuple(map(tuple, X.astype(int).tolist())),
        [np.float64(0), 1, 2, True][:1] and [[False, 1, 2.0], [np.float32(3), np.int8(4), 5]],
        list(X),
        X.astype(">f4"),
        X.astype(np.float16),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1][::-1],
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
        np.broadcast_to(X, (2, 3)),
        memoryview(X),
        Tensor(X),
        X.view(np.recarray),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_stands_for_the_same_numbers_is_taken(
    model: CompiledModel, feed: npt.ArrayLike
) -> None:
    np.testing.assert_array_equal(model.run({"x": feed})["y"], Y)


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        (
            X.astype(np.float64),
            "expected float32, got float64; convert it with .astype('float32')",
        ),
        (X.astype(np.int32), "expected float32, got int32; convert it"),
        (Tensor(X.astype(np.float64)), "expected float32, got float64"),
        (X.tolist()[:1], "expected shape [2, 3], got [1, 3]; reshape it"),
        (3.0, "expected shape [2, 3], got []"),
        ([[1, 2], [3]], "numpy makes none of"),
        (None, "expected numbers of float32, got None (object)"),
        ("12", "expected numbers of float32, got '12' (str)"),
        ([["1", "2", "3"]] * 2, "expected numbers of float32, got a value of type list (<U1)"),
        ({"x": 1}, "expected numbers of float32, got a value of type dict (object)"),
        ([[1j, 2, 3]] * 2, "and complex128 numbers would not stay what they are"),
        ([[1e300, 2, 3]] * 2, "a number given is beyond float32"),
        ([[1 << 70, 2, 3]] * 2, "expected numbers of float32"),
        (np.ma.masked_less(X, 2), "got a masked one; fill it with .filled(VALUE)"),
        (Unreadable(), "can't convert device tensor to numpy; call cpu() first"),
        (np.zeros((2, 3), [("a", "f4")]), "expected numbers of float32"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_something_else_is_refused(
    model: CompiledModel, feed: npt.ArrayLike, words: str
) -> None:
    with pytest.raises(FeedError, match=re.escape(words)) as caught:
        model.run({"x": feed})
    assert str(caught.value).startswith("input x: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "dtype", "want"),
    [
        ([1, 2], "int8", np.array([1, 2], np.int8)),
        ([255], "uint8", np.array([255], np.uint8)),
        ([], "int64", np.array([], np.int64)),
        ([True, False], "bool", np.array([True, False])),
        ([True], "int32", np.array([1], np.int32)),
        (7, "int64", np.array(7)),
        (np.int64(7), "int32", np.array(7, np.int32)),
        (float("nan"), "float32", np.array(np.nan, np.float32)),
        ([float("inf")], "float16", np.array([np.inf], np.float16)),
        ([1.5], "bfloat16", np.array([1.5], np.float32)),
    ],
)
def test_numbers_get_the_type_that_is_declared(given: Any, dtype: str, want: Array) -> None:
    got = as_array(given, dtype, "input x")
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [([300], "int8"), ([-1], "uint8"), ([1 << 63], "int64"), ([0.5], "int64"), ([1], "bool"),
     ([1e10], "float16"), (np.float64(2.5), "int32")],
)  # fmt: skip
def test_numbers_that_would_change_are_refused(given: Any, dtype: str) -> None:
    with pytest.raises(FeedError, match=f"input x: .*{dtype}"):
        as_array(given, dtype, "input x")


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"X": X}, "expected inputs x; got X; did you mean 'x'?"),
        ({"x": X, "z": X}, "expected inputs x; got x, z; give each by its name"),
        ({3: X}, "feeds must be a dict of arrays by input name, got the key 3 (int)"),
        (None, "expected a dict of arrays by input name, got NoneType"),
    ],
)
def test_names_that_do_not_fit(model: CompiledModel, feeds: Any, words: str) -> None:
    with pytest.raises(FeedError, match=re.escape(words)):
        model.run(feeds)


def test_some_outputs_come_in_the_order_asked_for(model: CompiledModel) -> None:
    assert list(model.run({"x": X}, ["t", "y"])) == ["t", "y"]
    only = model.run({"x": X}, outputs=("t",))
    assert list(only) == ["t"]
    np.testing.assert_array_equal(only["t"], T)
    assert model.run({"x": X}, []) == {}


def test_an_unknown_output_has_a_suggestion(model: CompiledModel) -> None:
    words = "outputs: 'Y' is no output of the model, which has y, t; did you mean 'y'?"
    with pytest.raises(FeedError, match=re.escape(words)):
        model.run({"x": X}, ["Y"])


def test_outputs_go_to_the_caller_s_arrays(model: CompiledModel) -> None:
    y, t = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    got = model.run({"x": X}, out={"t": t, "y": y})
    assert got["y"] is y
    assert got["t"] is t
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(t, T)


def test_one_output_is_written_and_another_is_fresh(model: CompiledModel) -> None:
    y = np.empty((2, 3), np.float32)
    got = model.run({"x": X}, ["t", "y"], {"y": y})
    assert list(got) == ["t", "y"]
    assert got["y"] is y
    np.testing.assert_array_equal(got["t"], T)


def test_the_model_itself_writes_to_an_array_that_is_whole(
    model: CompiledModel, library: fakes.CallbackLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.zeros((2, 3), np.float32)
    session = fakes.session_of(model)
    seen: list[bool] = []
    monkeypatch.setattr(
        session, "_entry", lambda pointer: (library._entry(_bases(pointer)), seen.append(y.any()))
    )
    model.run({"x": X}, out={"y": y})
    assert seen == [True]


def _bases(pointer: int) -> int:
    return pointer


@pytest.mark.parametrize(
    "array",
    [
        np.empty((3, 2), np.float32).T,
        np.empty((2, 6), np.float32)[:, ::2],
        np.empty((2, 3), ">f4"),
        np.empty(25, np.uint8)[1:].view(np.float32).reshape(2, 3),
    ],
    ids=["transposed", "strided", "byte order", "unaligned"],
)
def test_an_array_that_is_not_whole_gets_a_copy(model: CompiledModel, array: Array) -> None:
    assert model.run({"x": X}, out={"y": array})["y"] is array
    np.testing.assert_array_equal(array, Y)


def test_an_output_may_be_written_over_its_input(model: CompiledModel) -> None:
    x = X.copy()
    model.run({"x": x}, ["y", "t"], {"t": x})
    np.testing.assert_array_equal(x, T)
    x = X.copy()
    memory = np.concatenate([x.ravel(), np.zeros(1, np.float32)])
    given, into = memory[:6].reshape(2, 3), memory[1:].reshape(2, 3)
    model.run({"x": given}, out={"y": into})
    np.testing.assert_array_equal(into, Y)


def test_columns_of_one_array_are_two_outputs(model: CompiledModel) -> None:
    both = np.empty((2, 6), np.float32)
    model.run({"x": X}, out={"y": both[:, :3], "t": both[:, 3:]})
    np.testing.assert_array_equal(both, np.hstack([Y, T]))


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({"y": np.empty((3, 2), np.float32)}, "out: 'y' must have shape [2, 3], got [3, 2]"),
        ({"y": np.empty((2, 3))}, "out: 'y' must be an array of float32, got float64; make it"),
        ({"y": [0.0] * 6}, "out: 'y' must be a numpy array to write to, or a writable buffer"),
        ({"Y": X}, "out: 'Y' is no output of the model, which has y, t; did you mean 'y'?"),
        ({"y": np.broadcast_to(X, (2, 3))}, "out: 'y' is read-only; give an array that can be"),
        ({"y": X, "t": X}, "out: 'y' and 't' lie in the same memory; give each an array of its"),
    ],
)
def test_an_array_that_cannot_hold_the_output(
    model: CompiledModel, library: fakes.CallbackLibrary, out: Any, words: str
) -> None:
    with pytest.raises(FeedError, match=re.escape(words)):
        model.run({"x": np.zeros((2, 3), np.float32)}, out=out)
    assert library.runs == [], "it was found out after the run"


def test_an_array_for_an_output_that_is_not_asked_for(model: CompiledModel) -> None:
    with pytest.raises(FeedError, match="out: 'y' is not among the outputs asked for"):
        model.run({"x": X}, ["t"], {"y": np.empty((2, 3), np.float32)})
