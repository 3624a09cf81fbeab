"""Models whose weights stay in their files: the same graph as of a model that is read, little
memory, and no file but the model's own folder's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.errors import ModelError
from autotune.frontend import load_model, open_model
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array

RNG = np.random.default_rng(3)
WEIGHTS = RNG.standard_normal((64, 96)).astype(np.float32)
X = RNG.standard_normal((2, 64)).astype(np.float32)


def product(weights: onnx.TensorProto, name: str = "w") -> onnx.ModelProto:
    """x @ weights, the weights cast to float32."""
    node = helper.make_node("Cast", [name], ["f"], to=onnx.TensorProto.FLOAT)
    graph = helper.make_graph(
        [node, helper.make_node("MatMul", ["x", "f"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 64))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def opened(path: Path) -> Graph:
    graph = open_model(path)
    assert isinstance(graph, Graph)
    return graph


def result(graph: Graph) -> Array:
    return run_graph(graph, {"x": X})["y"]


KINDS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT4", "FLOAT8E4M3FN", "INT64")


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_graph_as_of_a_model_that_is_read(
    kind: str, beside: bool, tmp_path: Path
) -> None:
    number = getattr(onnx.TensorProto, kind)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    values = np.clip(WEIGHTS * 3, -7, 7).astype(dtype)
    tensor = numpy_helper.from_array(values, "w")
    assert tensor.data_type == number
    path = tmp_path / "m.onnx"
    onnx.save(product(tensor), str(path), save_as_external_data=beside, size_threshold=0)
    mapped, read = opened(path), load_model(path)
    assert mapped.constants.keys() == read.constants.keys()
    for name, array in read.constants.items():
        assert mapped.constants[name].dtype == array.dtype
        np.testing.assert_array_equal(mapped.constants[name], array)


def test_large_weights_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(product(numpy_helper.from_array(WEIGHTS, "w")), str(path))
    (array,) = (a for a in opened(path).constants.values() if a.size == WEIGHTS.size)
    assert isinstance(array.base, np.memmap)


def test_a_model_of_open_sizes_is_read(tmp_path: Path) -> None:
    """It lives long, and its file may be written anew."""
    model = product(numpy_helper.from_array(WEIGHTS, "w"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    symbolic = open_model(path)
    assert not isinstance(symbolic, Graph)
    path.write_bytes(b"")
    np.testing.assert_allclose(result(symbolic.graph({"N": 2})), X @ WEIGHTS, 1e-4, 1e-5)


@pytest.mark.parametrize("indices", ["flat", "rows"])
def test_sparse_initializers(indices: str, tmp_path: Path) -> None:
    rows, columns = np.nonzero(np.abs(WEIGHTS) > 1.5)
    values = numpy_helper.from_array(WEIGHTS[rows, columns], "w")
    places = np.stack([rows, columns], 1) if indices == "rows" else rows * 96 + columns
    where = numpy_helper.from_array(places.astype(np.int64), "i")
    model = product(values)
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, (64, 96)))
    dense = np.where(np.abs(WEIGHTS) > 1.5, WEIGHTS, 0)
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    np.testing.assert_allclose(result(opened(path)), X @ dense, 1e-4, 1e-5)
    model.graph.sparse_initializer[0].dims[0] = 2
    with pytest.raises(ModelError, match="'w': its indices do not fit the shape"):
        load_model(model)


# -------------------------------------------------------------------------- damaged, or hostile


def beside(folder: Path, **entries: str) -> Path:
    """A model whose weights are in w.bin, with entries of its reference changed."""
    path = folder / "m.onnx"
    model = product(numpy_helper.from_array(WEIGHTS, "w"))
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx.load(str(path), load_external_data=False)
    found = {e.key: e.value for e in model.graph.initializer[0].external_data} | entries
    del model.graph.initializer[0].external_data[:]
    for key, value in found.items():
        entry = onnx.StringStringEntryProto(key=key, value=value)
        model.graph.initializer[0].external_data.append(entry)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "link", "none.bin"])
def test_only_files_of_the_models_folder(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="'w': its external data"):
        open_model(beside(folder, location=location))


def test_a_file_does_not_say_what_was_found_for_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(WEIGHTS.nbytes))
    folder = tmp_path / "model"
    folder.mkdir()
    graph = opened(beside(folder, file=str(tmp_path / "secret")))
    np.testing.assert_allclose(result(graph), X @ WEIGHTS, 1e-4, 1e-5)


@pytest.mark.parametrize(
    "entries", [{"offset": "1000"}, {"length": "96"}, {"offset": "-4"}, {"length": "99999999"}]
)
def test_references_beyond_a_file(entries: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'w': its external data take 24576 bytes"):
        open_model(beside(tmp_path, **entries))


def test_files_that_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(product(numpy_helper.from_array(WEIGHTS, "w")), str(path))
    whole = path.read_bytes()
    for length in (0, 1, 7, 100, 5000, len(whole) - 200, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="not an ONNX file, or it is truncated"):
            open_model(path)


# ----------------------------------------------------------------------------------------- memory

COMPILE = """
import sys
import autotune
autotune.compile(sys.argv[1], machine="nominal").save(sys.argv[2])
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak) * 1024)
"""
# Not the peak that the system counts for a child: that begins with its parent's.


@pytest.mark.slow
def test_compiling_takes_half_as_much_again_as_the_weights(tmp_path: Path) -> None:
    """And 300 MB. They are taken in another order than the file's."""
    shapes = ((8192, 4096), (8192, 4096), (4096, 4096))
    weights = [np.full(shape, 0.01 * n, np.float32) for n, shape in enumerate(shapes)]
    nodes = [
        helper.make_node("Gemm", ["x", "w0"], ["h"], transB=1),
        helper.make_node("MatMul", ["h", "w1"], ["y"]),
        helper.make_node("MatMul", ["y", "w2"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4096))],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, (1, 4096))],
        [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)],
    )
    path = tmp_path / "large.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(path))
    out = tmp_path / "large.model"
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(path), str(out)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    total = sum(w.nbytes for w in weights)
    assert int(done.stdout) < 1.5 * total + 300e6
