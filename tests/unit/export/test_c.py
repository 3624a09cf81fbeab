"""`model.c`: compiled without a warning, right, and independent of any library but memcpy's."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cli import execute
from autotune.errors import ConfigError
from autotune.export.c_tidy import tidied
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.graph.feeds import random_feeds
from autotune.target import load_target
from tests.needs import needs
from tests.unit.export.test_export import C_FLAGS, exported
from tests.unit.frontend.onnx_models import nodes_model

CLANG = [
    [sys.executable, "-m", "ziglang", "cc", *C_FLAGS, level, "main.c", "model.c", "-c"]
    for level in (("-O0", "-O2") if importlib.util.find_spec("ziglang") else ())
]
"""Zig's compiler is clang."""


@needs("cc")
@pytest.mark.parametrize("compactly", [False, True])
@pytest.mark.parametrize("precision", ["float32", pytest.param("int8", marks=pytest.mark.slow)])
def test_it_compiles_without_warnings_and_computes_what_the_model_does(
    precision: str, compactly: bool, tmp_path: Path
) -> None:
    target = load_target("cortex-m4" if compactly else "c").with_precision(precision)
    model = autotune.compile("zoo:tiny", target=source_target(target))
    exported(model, tmp_path, format="c")
    for command in (
        ["cc", *C_FLAGS, "-c", "model.c"],
        ["cc", *C_FLAGS, "main.c", "model.o", "-lm", "-o", "main"],
        *CLANG,
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    here = autotune.compile("zoo:tiny", target=load_target("cpu").with_precision(precision))
    feeds = random_feeds(here.inputs, 0)
    (tmp_path / "in").write_bytes(feeds["x"].tobytes())
    subprocess.run(["./main", "in", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    found = np.frombuffer((tmp_path / "out").read_bytes(), np.float32)
    np.testing.assert_allclose(found, here.run(feeds)["y"].ravel(), rtol=1e-3, atol=1e-5)
    listed = ["nm", "-u", "model.o"]
    wanted = subprocess.run(listed, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert set(wanted.stdout.split()) - {"U"} <= {"memset", "memcpy", "expf", "ldexpf", "rintf"}


@needs("cc")
def test_a_model_without_weights_compiles_without_warnings(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = nodes_model(nodes, {"x": np.zeros((3, 5), np.float32)}, [], ["y"])
    compiled = autotune.compile(model, target=source_target(load_target("c")))
    exported(compiled, tmp_path, format="c")
    subprocess.run(["cc", *C_FLAGS, "-c", "model.c"], cwd=tmp_path, check=True)


@needs("cc")
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Neg", "Abs", "ReduceSum", "ReduceProd"])
def test_integers_wrap_around_whatever_c_leaves_undefined(op: str, tmp_path: Path) -> None:
    """Compilers may take it that signed integers do not overflow."""
    ends = np.array([[2**31 - 1, -(2**31), -8], [352719360, 2**31 - 1, -(2**31)]], np.int32)
    rules = {"keepdims": 0} if op.startswith("Reduce") else {}
    given = ["x", "x"] if op in ("Mul", "Add", "Sub") else ["x"]
    nodes = [helper.make_node("Neg", ["x"], ["n"])] if op == "Sub" else []
    node = helper.make_node(op, ["n", "x"] if op == "Sub" else given, ["y"], **rules)
    model = nodes_model([*nodes, node], {"x": ends}, [], ["y"])
    exported(autotune.compile(model, target=source_target(load_target("c"))), tmp_path, format="c")
    checked = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-O1"]
    command = ["cc", *C_FLAGS, *checked, "main.c", "model.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in").write_bytes(ends.tobytes())
    subprocess.run(["./main", "in", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    wide = ends.astype(object)
    exact = {
        "Mul": wide * wide, "Add": wide + wide, "Sub": -wide - wide, "Neg": -wide,
        "Abs": abs(wide),        "ReduceSum": wide.sum(), "ReduceProd": wide.prod(),
    }[op]  # fmt: skip
    wanted = np.asarray(np.asarray(exact) % 2**32, np.uint32).ravel()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", np.uint32), wanted)


@needs("cc")
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
def test_sums_of_integers_are_whole_where_compilers_add_several_at_once(
    op: str, tmp_path: Path
) -> None:
    """GCC 12 leaves terms out where several signed numbers are added up by unsigned ones."""
    terms = np.array([[3, -5, 7, 9, 11, 13, -15, 17, 19, 21, 23, 25]], np.int32)
    model = nodes_model([helper.make_node(op, ["x"], ["y"], keepdims=0)], {"x": terms}, [], ["y"])
    target = source_target(load_target("cortex-m4"))
    exported(autotune.compile(model, target=target), tmp_path, format="c")
    command = ["cc", *C_FLAGS, "-O3", "-march=native", "main.c", "model.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in").write_bytes(terms.tobytes())
    subprocess.run(["./main", "in", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    wanted = (terms.sum if op == "ReduceSum" else terms.prod)(dtype=np.int32)
    assert np.frombuffer((tmp_path / "out").read_bytes(), np.int32) == wanted


@needs("cc")
def test_comparisons_that_types_decide_are_no_warning(tmp_path: Path) -> None:
    """Places of unsigned bytes that may count from the end: `place < 0 ? place + 7 : place`."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("OneHot", ["a", "depth", "values"], ["y"]),
    ]
    known = [("depth", np.int64(7)), ("values", np.array([0, 1], np.float32))]
    tensors = [numpy_helper.from_array(array, name) for name, array in known]
    x = np.arange(10, dtype=np.uint8)
    model = nodes_model(nodes, {"x": x}, tensors, ["y"])
    exported(autotune.compile(model, target=source_target(load_target("c"))), tmp_path, format="c")
    command = ["cc", *C_FLAGS, "main.c", "model.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in").write_bytes(x.tobytes())
    subprocess.run(["./main", "in", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    found = np.fromfile(tmp_path / "out", np.float32).reshape(10, 7)
    np.testing.assert_array_equal(found, np.eye(10, 7))


@needs("cc")
def test_the_largest_integers_are_no_warning(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], [name], to=getattr(TensorProto, name))
        for name in ("UINT64", "INT64", "UINT32")
    ]
    x = np.array([0.5, 2.0**62, 3e9])
    model = nodes_model(nodes, {"x": x}, [], ["UINT64", "INT64", "UINT32"])
    exported(autotune.compile(model, target=source_target(load_target("c"))), tmp_path, format="c")
    subprocess.run(["cc", *C_FLAGS, "-c", "model.c"], cwd=tmp_path, check=True)


def test_an_instance_is_what_kernels_work_in(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target=source_target(load_target("cortex-m4")))
    exported(model, tmp_path, format="c")
    blocks = (model.image.arena_bytes, model.image.workspace_bytes)
    needed = sum(-(-nbytes // 64) * 64 for nbytes in blocks)
    assert f"#define MODEL_MEMORY_BYTES {needed}\n" in (tmp_path / "model.h").read_text()


def test_the_command_takes_any_processor_unless_told(tmp_path: Path) -> None:
    assert execute(["export", "zoo:tiny", "--format", "c", "-o", str(tmp_path / "any")]) == 0
    assert re.search(r"^weights +[1-9]\d+$", (tmp_path / "any/sizes.txt").read_text(), re.M)
    assert '"target": "c"' in (tmp_path / "any/model.c").read_text().replace("\\042", '"')
    arguments = ["export", "zoo:tiny", "--format", "c", "--target", "cortex-a7"]
    assert execute([*arguments, "-o", str(tmp_path / "a7")]) == 0


def test_what_c_cannot_be_is_refused(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny")
    with pytest.raises(ConfigError, match="compiled already has no C any more"):
        export_image(model.image, tmp_path, ExportOptions(format="c"))
    target = source_target(load_target("c", threads=2))
    with pytest.raises(ConfigError, match="one thread with its weights inside"):
        export_image(
            autotune.compile("zoo:tiny", target=target).image, tmp_path, ExportOptions(format="c")
        )
    with pytest.raises(ConfigError, match="C is exported for CPUs, and cuda is of kind cuda"):
        source_target(load_target("cuda"))


def test_lines_without_effect_are_left_out() -> None:
    lines = ["f32 a;", "f32 b;", "b = x[0];", "a = b;", "c = (c);", "o[0] = c;"]
    assert tidied(lines) == ["o[0] = c;"]
