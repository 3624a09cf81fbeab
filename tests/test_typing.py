"""The types of the package, as a user's checker sees them: mypy --strict on two programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PROGRAM = """
import copy
import io
import pathlib

import numpy as np
import numpy.typing as npt
import onnx

import autotune
from autotune.runtime import ModelTimes
from autotune.types import Task
from rpc_server.runners import FarmOptions


def tuned(path: pathlib.Path) -> float:
    report = autotune.tune(path, log="tuning.db", trials=8, farm=FarmOptions(boards=2))
    autotune.tune(onnx.ModelProto(), time_s=1.5, shapes={"x": (1, 3)}, on_event=print)
    with autotune.TuningLog("tuning.db", read_only=True) as log:
        autotune.compile("zoo:tiny", log=log, target=autotune.Target.from_json({}))
    weights: dict[Task, int] = autotune.partition("zoo:tiny", threads=2).weights()
    print(weights)
    return report.elapsed_s


def ran(data: bytes) -> npt.NDArray[np.float32]:
    with autotune.compile(data, calibration={"x": np.zeros(3)}) as model:
        assert isinstance(model, autotune.CompiledModel)
        kind: autotune.TensorType = model.inputs["x"]
        shape: tuple[int, ...] = kind.shape
        out = np.empty(shape, np.float32)
        model.run({"x": [[1, 2], [3, 4]]})
        model.run({"x": np.zeros(shape, ">f4")}, ["y"], {"y": out})
        model.run({"x": 1.0}, outputs=("y",))
        times: ModelTimes = model.bench(3, feeds={"x": out})
        print(times.median_s, model.notes, copy.copy(model), f"{model!r}")
        model.save(io.BytesIO())
        model.save(pathlib.Path("m"))
    try:
        again = autotune.load(data)
        again.close()
        autotune.load(io.BytesIO(data))
    except autotune.InputError as error:
        print(error)
    autotune.pin([0, 1], threads=2)
    return out
"""
WRONG = {
    'autotune.compile("m.onnx", threads="2")': "arg-type",
    "autotune.compile(3)": "arg-type",
    'autotune.compile("m.onnx", shapes={"x": "1x3"})': "dict-item",
    "autotune.load(None)": "arg-type",
    'autotune.tune("m.onnx", trial=3)': "call-arg",
    'autotune.tune("m.onnx", "cpu")': "call-arg",
    'autotune.tune("m.onnx", log=None)': "arg-type",
    'autotune.partition("m.onnx", trials=3)': "call-arg",
    'autotune.tuna("m.onnx")': "attr-defined",
    'autotune.load("m").inputs["x"] = None': "index",
    'autotune.load("m").run({"x": 1.0}, outputs=[3])': "list-item",
}


def checked(program: str, folder: Path) -> str:
    """What mypy --strict prints of a program outside of the project."""
    (folder / "user.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--no-error-summary",
            f"--cache-dir={ROOT / '.mypy_cache'}", str(folder / "user.py"),
        ],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_user_s_program_is_clean(tmp_path: Path) -> None:
    assert checked(PROGRAM, tmp_path) == ""


@pytest.mark.slow
def test_a_user_s_slips_are_found(tmp_path: Path) -> None:
    lines = ["import autotune", *WRONG]
    found = checked("\n".join(lines) + "\n", tmp_path).splitlines()
    errors = [line for line in found if "error:" in line]
    for number, (line, kind) in enumerate(WRONG.items(), 2):
        assert any(f"user.py:{number}: error:" in e and f"[{kind}]" in e for e in errors), line
    assert len(errors) == len(WRONG)


@pytest.mark.parametrize("package", ["autotune", "rpc_server", "cost_model", "search_spaces"])
def test_every_package_says_that_it_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
