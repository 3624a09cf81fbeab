"""Exported models of open sizes: one library, which computes what Python's program does."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.export.write import ExportOptions, export_image
from autotune.runtime.sized import SizedModel
from autotune.types import Array
from tests.needs import needs
from tests.unit.export.library import Model, Range, Tensor, pointers

BAD_MEMORY, BAD_ARGUMENT, BAD_SIZES = 2, 3, 7
C_FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror")
SIZES = ((1, 8, 8), (3, 24, 40), (2, 64, 16), (1, 8, 8))
RANGES: dict[str, tuple[int, int, int]] = {"N": (1, 4, 1), "H": (8, 64, 8), "W": (8, 64, 8)}


def network(folder: Path) -> Path:
    """Two convolutions; outputs: an image whose channels lie last inside, one of its parts, and
    what a classifier makes of its mean."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.standard_normal(shape).astype(np.float32) / 4
        return numpy_helper.from_array(array, name)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["image"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Slice", ["image", "zero", "five", "one"], ["part"]),
        node("GlobalAveragePool", ["image"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("MatMul", ["flat", "w3"], ["classes"]),
    ]
    floats = TensorProto.FLOAT
    outputs = (
        ("image", ["N", 16, "H2", "W2"]),
        ("part", ["N", 5, "H2", "W2"]),
        ("classes", ["N", 7]),
    )
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", floats, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info(name, floats, shape) for name, shape in outputs],
        [
            weights("w1", 16, 3, 3, 3),
            weights("w2", 16, 16, 3, 3),
            weights("w3", 16, 7),
            *(
                numpy_helper.from_array(np.array([n]), m)
                for m, n in (("zero", 0), ("five", 5), ("one", 1))
            ),
        ],
    )
    path = folder / "small.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SizedModel:
    model = autotune.compile(network(tmp_path_factory.mktemp("open")), ranges=RANGES)
    assert isinstance(model, SizedModel)
    assert model.serves_all
    return model


@pytest.fixture(scope="module")
def on_two_threads(tmp_path_factory: pytest.TempPathFactory) -> SizedModel:
    folder = tmp_path_factory.mktemp("threads")
    model = autotune.compile(network(folder), ranges=RANGES, threads=2)
    assert isinstance(model, SizedModel)
    return model


def library_of(model: SizedModel, folder: Path, **options: str) -> Model:
    export_image(model.image, folder, ExportOptions(**options))
    return Model(folder / "libmodel.so")


def sizes_of(model: SizedModel, sizes: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """In the library's order."""
    named = dict(zip(RANGES, sizes, strict=True))
    return (ctypes.c_int64 * len(sizes))(*(named[name] for name in model.ranges))


def image_of(sizes: tuple[int, ...]) -> Array:
    count, height, width = sizes
    return np.random.default_rng(sum(sizes)).random((count, 3, height, width), np.float32)


def told(library: Model, instance: ctypes.c_void_p, side: str) -> list[Tensor]:
    function = library.function(f"{side}_of")
    function.restype = ctypes.POINTER(Tensor)
    return [function(instance, n).contents for n in range(library.function(f"{side}s")())]


def check(
    model: SizedModel, library: Model, instance: ctypes.c_void_p, sizes: tuple[int, ...]
) -> None:
    assert library.function("resize")(instance, sizes_of(model, sizes)) == 0
    x = image_of(sizes)
    expected = model.run({"x": x})
    (given,) = told(library, instance, "input")
    assert (tuple(given.shape[:4]), given.bytes) == (x.shape, x.nbytes)
    outputs = []
    for tensor, array in zip(told(library, instance, "output"), expected.values(), strict=True):
        assert (tuple(tensor.shape[: tensor.rank]), tensor.bytes) == (array.shape, array.nbytes)
        outputs.append(np.full(array.shape, np.nan, array.dtype))
    assert library.function("run")(instance, pointers([x]), pointers(outputs)) == 0
    for found, array in zip(outputs, expected.values(), strict=True):
        np.testing.assert_array_equal(found, array)


def test_one_instance_serves_sizes_one_after_the_other(small: SizedModel, tmp_path: Path) -> None:
    library = library_of(small, tmp_path)
    code, instance = library.create()
    assert code == 0
    for sizes in SIZES:
        check(small, library, instance, sizes)
    library.destroy(instance)


def test_it_tells_what_is_open(small: SizedModel, tmp_path: Path) -> None:
    library = library_of(small, tmp_path)
    size = library.function("size")
    size.restype = ctypes.POINTER(Range)
    assert library.function("sizes")() == 3
    ranges = [size(n).contents for n in range(3)]
    found = {r.name.decode(): (r.least, r.most, r.step) for r in ranges}
    assert found == RANGES
    assert not size(3)
    shapes = [tuple(t.shape[: t.rank]) for t in library.tensors("output")]
    assert shapes == [(-1, 16, -1, -1), (-1, 5, -1, -1), (-1, 7)]


def test_sizes_must_be_given_and_in_range(small: SizedModel, tmp_path: Path) -> None:
    library = library_of(small, tmp_path)
    _, instance = library.create()
    run, resize = library.function("run"), library.function("resize")
    x, outputs = image_of(SIZES[0]), [np.empty(1 << 16, np.float32) for _ in range(3)]
    assert run(instance, pointers([x]), pointers(outputs)) == BAD_SIZES
    library.function("output_of").restype = ctypes.c_void_p
    assert library.function("output_of")(instance, 0) is None
    assert resize(instance, None) == BAD_ARGUMENT
    for sizes in ((0, 8, 8), (5, 8, 8), (1, 12, 8), (1, 8, 72), (1, 1 << 40, 8)):
        assert resize(instance, sizes_of(small, sizes)) == BAD_SIZES
    check(small, library, instance, SIZES[1])
    assert resize(instance, sizes_of(small, (9, 8, 8))) == BAD_SIZES
    assert run(instance, pointers([x]), pointers(outputs)) == BAD_SIZES
    library.destroy(instance)


def test_memory_of_the_caller_s_serves_what_fits_in_it(small: SizedModel, tmp_path: Path) -> None:
    library = library_of(small, tmp_path)
    memory_bytes = library.function("memory_bytes")
    middle, large = sizes_of(small, (2, 32, 32)), sizes_of(small, (4, 64, 64))
    needed = memory_bytes(middle)
    assert memory_bytes(None) < needed < memory_bytes(large)
    assert memory_bytes(sizes_of(small, (1, 9, 8))) == 0
    block = np.full(needed + 128, 0xFF, np.uint8)
    start = block.ctypes.data + -block.ctypes.data % 64
    made = ctypes.c_void_p()
    create, resize = library.function("create_in"), library.function("resize")
    assert create(start, memory_bytes(None) - 1, None, ctypes.byref(made)) == BAD_MEMORY
    assert create(start, needed, None, ctypes.byref(made)) == 0
    check(small, library, made, (2, 32, 32))
    assert resize(made, large) == BAD_MEMORY
    check(small, library, made, (1, 8, 8))
    library.destroy(made)
    assert block[start - block.ctypes.data + needed :].min() == 0xFF, (
        "nothing behind it is written"
    )


def test_two_threads_and_weights_in_a_file(on_two_threads: SizedModel, tmp_path: Path) -> None:
    model = on_two_threads
    library = library_of(model, tmp_path / "out", weights="file")
    code, instance = library.create(bytes(tmp_path / "out" / "model.weights"))
    assert code == 0
    for sizes in SIZES:
        check(model, library, instance, sizes)
    library.destroy(instance)


def test_threads_that_come_late_find_the_sizes_of_their_own_run(
    on_two_threads: SizedModel, tmp_path: Path
) -> None:
    library = library_of(on_two_threads, tmp_path)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the second thread waits for the first one's core
    try:
        code, instance = library.create()
        assert code == 0
        for sizes in SIZES * 40:
            check(on_two_threads, library, instance, sizes)
        library.destroy(instance)
    finally:
        os.sched_setaffinity(0, cores)


@needs("cc")
@pytest.mark.parametrize("kind", ["static", "object"])
def test_the_program_runs_it_at_sizes(small: SizedModel, tmp_path: Path, kind: str) -> None:
    export_image(small.image, tmp_path, ExportOptions(format=kind))
    linked = "libmodel.a" if kind == "static" else "model.o"
    subprocess.run(
        ["cc", *C_FLAGS, "main.c", linked, "-lm", "-lpthread", "-o", "main"],
        cwd=tmp_path,
        check=True,
    )
    x = image_of((3, 24, 40))
    x.tofile(tmp_path / "x.bin")
    sizes = ["--size", "N=3", "--size", "H=24", "--size", "W=40"]
    outs = ["-o", "image.bin", "part.bin", "classes.bin"]
    subprocess.run(["./main", "x.bin", *outs, *sizes], cwd=tmp_path, check=True)
    for name, array in small.run({"x": x}).items():
        found = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(array.shape)
        np.testing.assert_array_equal(found, array)
    for wrong, said in (
        (["--size", "N=3"], "error: H: expected --size NAME=N for it"),
        ([*sizes, "--size", "H=30"], "error: --size H=30: expected 8 to 64 in steps of 8"),
        ([*sizes, "--size", "Q=1"], "error: --size Q=1: expected NAME=N for each of N H W"),
    ):
        run = subprocess.run(
            ["./main", "x.bin", *wrong], cwd=tmp_path, check=False, capture_output=True, text=True
        )
        assert (run.returncode, run.stderr.strip()) == (2, said)


@needs("aarch64-cc", "qemu")
@pytest.mark.slow
def test_another_machine_computes_the_same(tmp_path: Path) -> None:
    path = network(tmp_path)
    model = autotune.compile(path, ranges=RANGES, target="cortex-a72")
    assert isinstance(model, SizedModel)
    export_image(model.image, tmp_path, ExportOptions(format="static"))
    subprocess.run(
        ["aarch64-linux-gnu-gcc", *C_FLAGS, "main.c", "libmodel.a", "-lm", "-o", "main"],
        cwd=tmp_path,
        check=True,
    )
    x = image_of((2, 16, 40))
    x.tofile(tmp_path / "x.bin")
    sizes = ["--size", "N=2", "--size", "H=16", "--size", "W=40"]
    emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./main", "x.bin"]
    outs = ["-o", "image.bin", "part.bin", "classes.bin"]
    subprocess.run([*emulated, *outs, *sizes], cwd=tmp_path, check=True)
    names = ("image", "part", "classes")
    for name, array in zip(names, reference(path, x), strict=True):
        found = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)


def reference(path: Path, x: Array) -> list[Array]:
    return list(onnx.reference.ReferenceEvaluator(str(path)).run(None, {"x": x}))
