"""The zoo: every model imports, its file is valid, and its outputs are onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from autotune.errors import ModelError
from autotune.frontend import load_model
from autotune.frontend.onnx.importer import import_model
from autotune.frontend.zoo import ZOO, build_model, export_onnx
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array
from tests.graph_verify import verify_graph

# Networks inside the onnx package, their weights all alike.
LIGHT = (
    "resnet50", "squeezenet", "densenet121", "inception_v2", "shufflenet", "vgg19", "bvlc_alexnet",
)  # fmt: skip


def feeds(graph: Graph) -> dict[str, Array]:
    """Random images, word numbers, and a mask that leaves some words out."""
    random = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for name, type_ in graph.inputs:
        if type_.dtype == "float32":
            made[name] = random.standard_normal(type_.shape, dtype=np.float32)
        else:
            made[name] = random.integers(0, 2 if name == "mask" else 30000, type_.shape)
    return made


def compare(model: onnx.ModelProto) -> None:
    graph = import_model(model, {})
    verify_graph(graph)
    inputs = feeds(graph)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, inputs)[0]
    got = run_graph(graph, inputs, "float32")[graph.outputs[0][0]]
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()


def test_names() -> None:
    images = {"resnet18", "mobilenetv2", "shufflenet", "squeezenet", "tiny"}
    assert images | {"bert_small"} <= set(ZOO)


def test_tiny_equals_onnxruntime() -> None:
    compare(build_model("tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ZOO if n != "tiny"])
def test_model_equals_onnxruntime(name: str) -> None:
    compare(build_model(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_light_network_imports(name: str) -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    graph = load_model(str(folder / f"light_{name}.onnx"))
    verify_graph(graph)
    assert "conv2d" in {n.op for n in graph.nodes}


def test_weights_are_the_same_every_time() -> None:
    one, two = build_model("tiny"), build_model("tiny")
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_outputs_are_not_saturated() -> None:
    graph = load_model("zoo:tiny")
    (probabilities,) = run_graph(graph, feeds(graph)).values()
    assert probabilities.max() < 0.9


def test_exported_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    export_onnx("tiny", path)
    onnx.checker.check_model(str(path), full_check=True)
    assert load_model(str(path)).nodes == load_model("zoo:tiny").nodes


def test_export_to_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot write"):
        export_onnx("tiny", tmp_path / "none" / "tiny.onnx")
