"""Models of `compile`, `partition` and `tune`: a path, bytes, a ModelProto or a Graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autotune
from autotune.errors import ModelError
from autotune.frontend import load_model
from autotune.graph.feeds import random_feeds
from autotune.graph.interp import run_graph
from autotune.types import Array

FLOAT = onnx.TensorProto.FLOAT
WEIGHTS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


def net(batch: str | int = 3) -> onnx.ModelProto:
    """y = relu(x @ w)"""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, [batch, 8])], [info("y", FLOAT, [batch, 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


class Place:
    """A path of another package."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(net(), str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "Path": lambda path: path,
    "PathLike": Place,
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "ModelProto": lambda path: onnx.load(str(path)),
    "Graph": load_model,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_model_in_every_form_compiles(source: Callable[[Path], Any], file: Path) -> None:
    model = autotune.compile(source(file))
    want = np.maximum(X @ WEIGHTS, 0)
    np.testing.assert_allclose(model.run({"x": X})["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_model_in_every_form_is_partitioned(source: Callable[[Path], Any], file: Path) -> None:
    (weight,) = autotune.partition(source(file)).weights().values()
    assert weight == 1


def test_a_bundled_model_may_be_a_path_too() -> None:
    assert dict(load_model(Path("zoo:tiny")).inputs) == dict(load_model("zoo:tiny").inputs)
    tasks = autotune.partition(Path("zoo:tiny")).weights()
    assert tasks == autotune.partition("zoo:tiny").weights()


@pytest.mark.parametrize("form", ["str", "bytes", "ModelProto", "Graph"])
def test_a_model_in_every_form_is_tuned(
    form: str, file: Path, tmp_path: Path, measured: Path
) -> None:
    report = autotune.tune(
        SOURCES[form](file), log=tmp_path / "log.db", dry_run=True, cache_dir=measured
    )
    assert report.measured == 0
    assert len(report.tasks) == 1


def test_a_model_that_is_given_is_not_changed() -> None:
    model = net("batch")
    before = model.SerializeToString(deterministic=True)
    autotune.compile(model, shapes={"x": (3, 8)})
    assert model.SerializeToString(deterministic=True) == before


def test_shapes_of_a_model_in_memory_are_fixed() -> None:
    for model in (net("batch"), net("batch").SerializeToString()):
        assert dict(load_model(model, {"x": [5, 8]}).inputs)["x"].shape == (5, 8)  # type: ignore[dict-item]
        with pytest.raises(ModelError, match="symbolic"):
            load_model(model)


def test_shapes_of_a_graph_are_its_own() -> None:
    graph = load_model(net())
    assert load_model(graph, {"x": (3, 8)}) is graph
    for shapes in ({"x": (4, 8)}, {"z": (3, 8)}):
        with pytest.raises(ModelError, match=r"a Graph's inputs have theirs \(x \(float32\[3,8\]"):
            load_model(graph, shapes)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (b"", "the model given as bytes is not an ONNX file, or it is truncated"),
        (b"\x00" * 5000, "the model given as bytes is not an ONNX file, or it is truncated"),
        (net().SerializeToString()[:-40], "the model given as bytes is not an ONNX file"),
        (onnx.ModelProto(), "the model given as a ModelProto is not an ONNX file"),
        (net().graph, "model must be a path .*, got a value of type GraphProto"),
        ("no" * 5000, "model 'nono.*nono' does not exist; expected an .onnx, .tflite or"),
    ],
)
def test_a_wrong_model_is_one_short_line(model: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        autotune.compile(model)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------- external data


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The same model with its weights in a file beside it."""
    folder = tmp_path / "beside"
    folder.mkdir()
    onnx.save(
        net(), str(folder / "net.onnx"), save_as_external_data=True, location="net.data",
        size_threshold=0,
    )  # fmt: skip
    return folder / "net.onnx"


def right(model: Any) -> bool:
    got: dict[str, Array] = autotune.compile(model).run({"x": X})
    return bool(np.allclose(got["y"], np.maximum(X @ WEIGHTS, 0), 1e-5, 1e-6))


def test_tensors_beside_a_path_are_found(outside: Path) -> None:
    assert all(right(source(outside)) for source in (str, Path, Place))
    assert right(onnx.load(str(outside))), "the onnx package brought them"


def test_tensors_that_lie_elsewhere_are_named(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside.parent)  # whatever lies here is nobody's business
    proto = onnx.load(str(outside), load_external_data=False)
    for model, what in ((outside.read_bytes(), "bytes"), (proto, "a ModelProto")):
        with pytest.raises(ModelError) as caught:
            autotune.compile(model)
        assert str(caught.value) == (
            f"the model given as {what}: tensor 'w': the data lie in another file ('net.data'); "
            "give the path of the .onnx file instead, or load it with onnx.load, which brings "
            "them in"
        )


def test_tensors_inside_of_nodes_are_found_too(outside: Path) -> None:
    proto = onnx.load(str(outside), load_external_data=False)
    tensor = proto.graph.initializer.pop()
    tensor.name = ""
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    with pytest.raises(ModelError, match="the data lie in another file"):
        load_model(proto)


def test_a_missing_file_of_tensors_is_one_line(outside: Path) -> None:
    os.remove(outside.parent / "net.data")
    with pytest.raises(ModelError, match=r"net\.data") as caught:
        load_model(outside)
    assert "\n" not in str(caught.value)


def test_a_graph_that_is_tuned_and_compiled_gives_what_its_interpreter_does() -> None:
    graph = load_model("zoo:tiny")
    model = autotune.compile(graph)
    feeds = random_feeds(model.inputs, 0)
    for name, want in run_graph(graph, feeds).items():
        np.testing.assert_allclose(model.run(feeds)[name], want, rtol=1e-4, atol=1e-4)
