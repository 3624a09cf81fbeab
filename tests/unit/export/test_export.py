"""Exported models: what a C program sees of them, and that they compute what Python's do."""

from __future__ import annotations

import ctypes
import json
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cli.export import grown
from autotune.errors import ConfigError
from autotune.export.write import ExportOptions, export_image
from autotune.graph.feeds import random_feeds
from autotune.runtime.model import CompiledModel
from tests.needs import needs
from tests.unit.export.library import Model

NO_WEIGHTS, BAD_MEMORY, BAD_ARGUMENT, BAD_WEIGHTS = 4, 2, 3, 5
C_FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror")


@pytest.fixture(scope="module")
def tiny() -> CompiledModel:
    return autotune.compile("zoo:tiny")


def exported(model: CompiledModel, folder: Path, **options: str) -> Path:
    export_image(model.image, folder, ExportOptions(**options))
    return folder


def check_equal(model: CompiledModel, library: Model, instance: ctypes.c_void_p) -> None:
    feeds = random_feeds(model.inputs, 3)
    expected = model.run(feeds)
    found = library.run(instance, list(feeds.values()))
    for name, array in zip(expected, found, strict=True):
        np.testing.assert_array_equal(array, expected[name])


def test_a_shared_library_computes_what_the_model_does(
    tiny: CompiledModel, tmp_path: Path
) -> None:
    library = Model(exported(tiny, tmp_path) / "libmodel.so")
    code, instance = library.create()
    assert code == 0
    check_equal(tiny, library, instance)
    check_equal(tiny, library, instance)
    library.destroy(instance)
    library.destroy(ctypes.c_void_p())


def test_it_tells_its_inputs_and_what_it_is(tiny: CompiledModel, tmp_path: Path) -> None:
    library = Model(exported(tiny, tmp_path) / "libmodel.so")
    for side, ports in (("input", tiny.inputs), ("output", tiny.outputs)):
        tensors = library.tensors(side)
        assert [t.name.decode() for t in tensors] == list(ports)
        assert [tuple(t.shape[: t.rank]) for t in tensors] == [k.shape for k in ports.values()]
        assert [t.bytes for t in tensors] == [kind.nbytes for kind in ports.values()]
        assert not library.function(side)(len(ports))
        assert not library.function(side)(-1)
    about = json.loads(library.function("about")())
    assert about["target"] == "cpu"
    assert len(about["digest"]) == 64


def test_instances_run_side_by_side(tiny: CompiledModel, tmp_path: Path) -> None:
    library = Model(exported(tiny, tmp_path) / "libmodel.so")
    failures: list[BaseException] = []

    def runs() -> None:
        try:
            _, instance = library.create()
            for _ in range(20):
                check_equal(tiny, library, instance)
            library.destroy(instance)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=runs) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_team_of_threads_serves_all_instances_and_comes_back(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", threads=2)
    library = Model(exported(model, tmp_path) / "libmodel.so")
    assert library.function("threads")() == 2
    for limit in (2, 1):
        assert library.function("limit_threads")(limit) == 0
        (_, one), (_, other) = library.create(), library.create()
        check_equal(model, library, one)
        library.destroy(one)
        check_equal(model, library, other)
        library.destroy(other)
    assert library.function("limit_threads")(3) == BAD_ARGUMENT


def test_memory_of_the_caller_s_is_taken_where_it_will_do(
    tiny: CompiledModel, tmp_path: Path
) -> None:
    library = Model(exported(tiny, tmp_path) / "libmodel.so")
    nbytes = library.function("memory_bytes")()
    block = np.full(nbytes + 128, 0xFF, np.uint8)
    start = block.ctypes.data + -block.ctypes.data % 64
    made = ctypes.c_void_p()
    create = library.function("create_in")
    assert create(start + 4, nbytes, None, ctypes.byref(made)) == BAD_MEMORY
    assert create(start, nbytes - 1, None, ctypes.byref(made)) == BAD_MEMORY
    assert create(None, nbytes, None, ctypes.byref(made)) == BAD_MEMORY
    assert create(start, nbytes, None, None) == BAD_ARGUMENT
    assert create(start, nbytes, None, ctypes.byref(made)) == 0
    check_equal(tiny, library, made)
    library.destroy(made)
    assert library.function("run")(made, None, None) == BAD_ARGUMENT
    assert b"null" in library.function("error")(BAD_ARGUMENT)


def test_weights_in_a_file_are_checked_when_they_are_mapped(
    tiny: CompiledModel, tmp_path: Path
) -> None:
    library = Model(exported(tiny, tmp_path, weights="file") / "libmodel.so")
    file = tmp_path / "model.weights"
    code, instance = library.create(bytes(file))
    assert code == 0
    check_equal(tiny, library, instance)
    library.destroy(instance)
    assert library.create(None)[0] == NO_WEIGHTS
    assert library.create(b"nowhere")[0] == NO_WEIGHTS
    data = file.read_bytes()
    for wrong in (data[:-1], data + b"x", data[:-1] + b"x", b""):
        file.write_bytes(wrong)
        assert library.create(bytes(file))[0] == BAD_WEIGHTS


def test_outputs_that_kernels_do_not_write_as_asked_are_copied(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Split", ["r"], ["a", "b"], axis=2, num_outputs=2),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "views",
        [value("x", TensorProto.FLOAT, [2, 3, 8])],
        [
            *(value(n, TensorProto.FLOAT, [2, 3, 4]) for n in "ab"),
            value("same", TensorProto.FLOAT, [2, 3, 8]),
            value("t", TensorProto.FLOAT, [2, 8, 3]),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(proto, tmp_path / "views.onnx")
    model = autotune.compile(str(tmp_path / "views.onnx"))
    library = Model(exported(model, tmp_path) / "libmodel.so")
    _, instance = library.create()
    check_equal(model, library, instance)
    library.destroy(instance)


@needs("cc")
@pytest.mark.parametrize("format_", ["shared", "static", "object"])
def test_the_program_runs_a_model_on_files(
    format_: str, tiny: CompiledModel, tmp_path: Path
) -> None:
    exported(tiny, tmp_path, format=format_)
    library = {"shared": "-lmodel", "static": "libmodel.a", "object": "model.o"}[format_]
    paths = ("-L.", f"-Wl,-rpath,{tmp_path}")
    build = ["cc", *C_FLAGS, "main.c", library, "-lm", *paths, "-o", "main"]
    subprocess.run(build, cwd=tmp_path, check=True)
    feeds = random_feeds(tiny.inputs, 0)
    (tmp_path / "in.bin").write_bytes(next(iter(feeds.values())).tobytes())
    done = run(tmp_path, "./main", "in.bin", "-o", "out.bin", "--repeat", "3", "--threads", "1")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "load", "first", "median", "least",
    ]  # fmt: skip
    expected = next(iter(tiny.run(feeds).values()))
    assert (tmp_path / "out.bin").read_bytes() == expected.tobytes()
    for arguments, words in (
        (("in.bin", "in.bin"), "more files than the model has inputs"),
        (("main.c",), "expected 12288 bytes, got fewer"),
        (("in.bin", "--threads", "2"), "compiled for up to 1"),
        (("in.bin", "--repeat", "x"), "expected a number of at least 1"),
        (("in.bin", "--size", "7"), "--size: no option of main"),
        (("in.bin", "-o"), "usage: main 1 input file(s)"),
        ((), "usage: main 1 input file(s)"),
    ):
        done = run(tmp_path, "./main", *arguments, check=False)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


@needs("cc")
def test_one_program_holds_two_models(tiny: CompiledModel, tmp_path: Path) -> None:
    for prefix in ("one", "two"):
        exported(tiny, tmp_path / prefix, format="static", prefix=prefix)
    code = """
#include "one/model.h"
#include "two/model.h"
int main(void) {
    one *a; two *b;
    return one_create(0, &a) || two_create(0, &b) || one_inputs() != two_inputs();
}
"""
    (tmp_path / "both.c").write_text(code)
    build = ["cc", *C_FLAGS, "both.c", "one/libmodel.a", "two/libmodel.a", "-o", "both"]
    subprocess.run(build, cwd=tmp_path, check=True)
    run(tmp_path, "./both")


@needs("aarch64-cc", "qemu")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_for_another_machine_is_linked_here(threads: int, tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target="cortex-a72", threads=threads)
    exported(model, tmp_path)
    compiler = "aarch64-linux-gnu-gcc"
    paths = ("-L.", f"-Wl,-rpath,{tmp_path}")
    subprocess.run(
        [compiler, *C_FLAGS, "main.c", "-lmodel", *paths, "-o", "main"], cwd=tmp_path, check=True
    )
    here = autotune.compile("zoo:tiny")
    feeds = random_feeds(here.inputs, 0)
    (tmp_path / "in.bin").write_bytes(next(iter(feeds.values())).tobytes())
    run(tmp_path, "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./main", "in.bin", "-o", "out")
    found = np.frombuffer((tmp_path / "out").read_bytes(), np.float32)
    np.testing.assert_allclose(found, here.run(feeds)["y"].ravel(), rtol=1e-4, atol=1e-6)


def run(folder: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("target", ["cortex-a7", "riscv64-v"])
@pytest.mark.parametrize("format_", ["shared", "static"])
def test_every_machine_of_boards_is_written_for(target: str, format_: str, tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target=target, threads=2)
    exported(model, tmp_path, format=format_)


def test_what_is_not_for_a_cpu_is_refused(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target="opencl")
    with pytest.raises(ConfigError, match="exported for CPUs, and opencl is a target of kind"):
        exported(model, tmp_path)


def test_names_and_formats_are_checked(tiny: CompiledModel, tmp_path: Path) -> None:
    for prefix in ("my-model", "int", "class", "main", "malloc", "block"):
        with pytest.raises(ConfigError, match="--prefix must be a name in C"):
            exported(tiny, tmp_path / "out", prefix=prefix)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="format is 'shared'"):
        exported(tiny, tmp_path, format="dll")


def test_weights_that_take_more_than_in_the_model_are_said(
    tiny: CompiledModel, tmp_path: Path
) -> None:
    path, image = str(tmp_path / "model.onnx"), tiny.image
    weights = numpy_helper.from_array(np.ones((100, 100), np.float32), "w")
    onnx.save(helper.make_model(helper.make_graph([], "net", [], [], [weights])), path)
    taken = image.constants.nbytes
    assert grown(path, image) == (
        f"weights take {taken / 1e6:.1f} MB, of 0.0 MB in the model: transformed ones are faster; "
        "--size leaves them as they are, and says what that costs"
    )
    assert grown("zoo:tiny", image) == ""
