"""Commands on a model whose inputs have symbolic dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.cli import execute
from autotune.cli.options import parse_ranges, parse_shapes
from autotune.errors import ConfigError

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with y = a + b of any batch and length, and arrays for it."""
    monkeypatch.chdir(tmp_path)
    a, b, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["B", "S"]) for n in "aby")
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", [a, b], [y])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "sum.onnx")
    for name, length in (("a", 6), ("b", 6), ("long", 7)):
        np.save(f"{name}.npy", np.ones((2, length), np.float32))


INPUTS = ("--input", "a=a.npy", "--input", "b=b.npy")


def test_a_run_takes_the_sizes_of_its_inputs(capsys: Captured) -> None:
    assert execute(["run", "sum.onnx", *INPUTS, "-o", "y.npz"]) == 0
    out, err = capsys.readouterr()
    assert "2x6" in out
    assert err.count("\n") == 1
    assert err.startswith("note: the sizes B, S of sum may change from run to run: one program")
    np.testing.assert_array_equal(np.load("y.npz")["y"], np.full((2, 6), 2, np.float32))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--input", "a=a.npy", "--input", "b=long.npy"), "input 'b' dimension 1 (S) is 7, input"),
        ((*INPUTS, "--range", "S=8:64:8"), "'a' dimension 1 (S) is 6, the range is 8 to 64 in s"),
        ((*INPUTS, "--range", "T=8:64"), "a range is given for 'T', but the symbolic dimensions"),
        ((*INPUTS, "--shape", "a=1xT"), "input 'a' dimension 0 is 2, expected 1: float32[1,T]"),
    ],
)
def test_sizes_that_do_not_fit(arguments: tuple[str, ...], words: str, capsys: Captured) -> None:
    assert execute(["run", "sum.onnx", *arguments]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("run", "--random"), "the sizes of sum.onnx are open; give them with --at B=1, --at S=1"),
        (("bench",), "the sizes of sum.onnx are open; give them with --at B=1, --at S=1"),
        (
            ("tune", "--time", "1s"),
            "sizes of B, S have no range, which tuning for all of them needs; give them with "
            "--range B=LEAST:MOST --range S=LEAST:MOST, or fix the sizes with --shape",
        ),
    ],
)
def test_what_needs_sizes_asks_for_them(
    command: tuple[str, ...], words: str, capsys: Captured
) -> None:
    assert execute([command[0], "sum.onnx", *command[1:]]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_sizes_are_fixed_by_shapes(capsys: Captured) -> None:
    assert execute(["compile", "sum.onnx", "--shape", "a=2x6"]) == 0
    assert execute(["run", "sum.model", *INPUTS]) == 0
    assert execute(["run", "sum.model", *INPUTS, "--range", "B=1:2"]) == 2
    assert "settled --range" in capsys.readouterr().err


RANGES = ("--range", "B=1:4", "--range", "S=1:64")


def test_a_program_for_all_sizes_is_a_file(capsys: Captured) -> None:
    assert execute(["compile", "sum.onnx", *RANGES]) == 0
    assert "kernels for all sizes of B, S" in capsys.readouterr().out
    assert execute(["run", "sum.model", *INPUTS, "-o", "y.npz"]) == 0
    np.testing.assert_array_equal(np.load("y.npz")["y"], np.full((2, 6), 2, np.float32))
    assert execute(["run", "sum.model", "--random", "--at", "B=3", "--at", "S=50"]) == 0
    assert "3x50" in capsys.readouterr().out
    assert execute(["bench", "sum.model", "--at", "B=1,4", "--at", "S=8,16,64"]) == 0
    assert capsys.readouterr().out.count("sum.model at B=") == 6
    assert execute(["inspect", "sum.model"]) == 0
    assert "B: 1 to 4, S: 1 to 64" in capsys.readouterr().out
    assert execute(["export", "sum.model", "--format", "python", "-o", "out"]) == 0
    assert Path("out/model.model").read_bytes() == Path("sum.model").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--random"), "sizes of sum.model are open; give them with --at B=1, --at S=1"),
        (("run", "--random", "--at", "B=1"), "sizes must be given for each of B, S, got B"),
        (("run", "--random", "--at", "B=1,2", "--at", "S=2"), "2 sets of sizes, expected one"),
        (("bench", "--at", "B=5", "--at", "S=2"), "the size of B is 5, the range is 1 to 4"),
        (("bench", "--at", "B"), "expected --at H=224 or H=224,640, got 'B'"),
        (("bench", "--at", "B=1", "--at", "B=2"), "--at of B is given twice"),
        (("bench", "--profile", "--at", "B=1", "--at", "S=1"), "--profile and --json are for fi"),
        (
            ("export", "--format", "c", "-o", "out"),
            "a model that is compiled already has no C any more; export the model it came from",
        ),
    ],
)
def test_what_needs_one_set_of_sizes(
    arguments: tuple[str, ...], words: str, capsys: Captured
) -> None:
    assert execute(["compile", "sum.onnx", *RANGES]) == 0
    capsys.readouterr()
    assert execute([arguments[0], "sum.model", *arguments[1:]]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_fixed_sizes_are_not_named_again(capsys: Captured) -> None:
    assert execute(["compile", "sum.onnx", "--shape", "a=2x6"]) == 0
    assert execute(["bench", "sum.model", "--at", "B=2"]) == 2
    assert "--at is for open sizes, those of sum.model are fixed" in capsys.readouterr().err


def test_symbols_and_ranges_as_text() -> None:
    assert parse_shapes(["x=1x3xHxW", "y=2Xn"]) == {"x": (1, 3, "H", "W"), "y": (2, "n")}
    assert parse_ranges(["H=64:1024:32", "N=1:8"]) == {"H": (64, 1024, 32), "N": (1, 8, 1)}
    for text in ("H", "H=4", "H=1:2:3:4", "H=a:b", "=1:2", "H=0:4"):
        with pytest.raises(ConfigError, match="expected --range H=64:1024:32, got"):
            parse_ranges([text])
    with pytest.raises(ConfigError, match="--range of H is given twice"):
        parse_ranges(["H=1:2", "H=1:3"])


def test_tune_measures_what_all_sizes_are_made_of(capsys: Captured) -> None:
    ranges = ("--range", "B=1:4", "--range", "S=1:16")
    tuned = ["tune", "sum.onnx", *ranges, "--at", "B=2", "--at", "S=6,16", "--trials", "2"]
    assert execute([*tuned, "--log", "t.db"]) == 0
    out = capsys.readouterr().out
    assert "a program for all sizes has no one latency; see autotune bench --at" in out
    assert execute(["compile", "sum.onnx", *ranges, "--log", "t.db", "-o", "sum.model"]) == 0
    assert execute(["run", "sum.model", *INPUTS, "-o", "y.npz"]) == 0
    np.testing.assert_array_equal(np.load("y.npz")["y"], np.full((2, 6), 2, np.float32))


def test_tune_refuses_sizes_outside_their_range(capsys: Captured) -> None:
    ranges = ("--range", "B=1:4", "--range", "S=1:16")
    assert execute(["tune", "sum.onnx", *ranges, "--at", "B=2", "--at", "S=17"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the size of S is 17, the range is 1 to 16" in line
