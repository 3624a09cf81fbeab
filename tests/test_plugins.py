"""Packages installed beside the project add parts by the entry points `autotune.plugins`.

`examples/plugin` is installed as anybody's would be; other plugins here are a module and what an
installer writes beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import autotune

ROOT = Path(__file__).parent.parent


def installed(folder: Path, name: str, code: str) -> Path:
    """A plugin of one module, as an installer leaves it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    points = f"[autotune.plugins]\n{name} = {module}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with a folder of installed packages, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "default"}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that examples/plugin is installed in, by pip, without a network."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(ROOT / "examples/plugin", source)
    folder = tmp_path_factory.mktemp("plugins")
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
            "--no-build-isolation", "--target", str(folder), str(source),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


MODEL = """
import sys
import numpy as np, onnx
from onnx import TensorProto, helper
node = helper.make_node("SoftThreshold", ["x"], ["y"], domain="example", limit=1.0)
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 40]) for n in "xy")
opsets = [helper.make_opsetid("", 20), helper.make_opsetid("example", 1)]
model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
onnx.save(model, "shrink.onnx")
import autotune
from autotune.target import host_target
report = autotune.tune("shrink.onnx", trials=4, log="tuning.db")
with autotune.TuningLog("tuning.db", read_only=True) as log:
    records = log.records(report.tasks[0].task.key, host_target())
    print({(r.rule, r.result.status.value) for r in records})
x = np.linspace(-4, 4, 320, dtype=np.float32).reshape(8, 40)
y = autotune.compile("shrink.onnx", log="tuning.db").run({"x": x})["y"]
print(np.array_equal(y, x - np.clip(x, -1, 1)))
"""


@pytest.mark.slow
def test_an_op_a_rule_and_an_importer_tune_and_compile_a_model(example: Path) -> None:
    done = python(example, "-c", MODEL)
    assert (done.stdout, done.stderr) == ("{('thresholds', 'OK')}\nTrue\n", "")


@pytest.mark.slow
def test_a_command_runs_and_is_listed(example: Path) -> None:
    done = python(example, "-m", "autotune", "threshold", "1", "-2", "0.25")
    assert (done.stdout, done.stderr, done.returncode) == ("0.5 -1.5 0.0\n", "", 0)
    assert "threshold threshold numbers" in python(example, "-m", "autotune", "--help").stdout


@pytest.mark.slow
def test_a_target_is_known_by_its_name(example: Path) -> None:
    code = "from autotune.target import load_target; print(load_target('workbench', 2).key)"
    done = python(example, "-c", code)
    assert (done.stdout, done.stderr) == ("cpu-x86_64-v256-haswell-t2\n", "")


@pytest.mark.slow
def test_running_a_saved_model_loads_no_plugin(example: Path) -> None:
    autotune.compile("zoo:tiny").save(example / "tiny.model")
    code = (
        "import sys, autotune; autotune.load('tiny.model'); print('soft_threshold' in sys.modules)"
    )
    assert python(example, "-c", code).stdout == "False\n"


BROKEN = """
from autotune.ops import OPS
OPS.add("half", OPS.get("relu"))
raise RuntimeError("no license\\nfor this machine")
"""
TAKEN = """
from search_spaces.base import RULES
RULES.add("spare", None)
RULES.add("nests", None)
"""


def test_one_that_fails_is_one_line_with_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    installed(tmp_path, "license-check", BROKEN)
    done = python(tmp_path, "-m", "autotune", "--help")
    assert done.stderr == (
        "warning: plugin license-check (license_check) is left out: RuntimeError: no license for "
        "this machine\n"
    )
    assert done.returncode == 0
    code = "from autotune.ops import OPS; print('half' in OPS, 'relu' in OPS)"
    assert python(tmp_path, "-c", code).stdout == "False True\n"


def test_the_project_s_own_names_are_refused(tmp_path: Path) -> None:
    installed(tmp_path, "taken", TAKEN)
    code = (
        "from search_spaces.rules import RULES; print('spare' in RULES, RULES.get('nests').name)"
    )
    done = python(tmp_path, "-c", code)
    assert done.stdout == "False nests\n"
    assert "plugin taken (taken) is left out: rule 'nests' is registered twice" in done.stderr


def test_a_failure_loses_none_of_the_project_s_parts_that_it_imported_first(
    tmp_path: Path,
) -> None:
    installed(tmp_path, "early", "import autotune.frontend.zoo, cost_model.models\n1 / 0")
    code = """
from autotune.ops import OPS
"nothing" in OPS
from autotune.frontend.zoo import ZOO
from cost_model.models import COST_MODELS
print("tiny" in ZOO, len(COST_MODELS.parts()) > 0)
"""
    done = python(tmp_path, "-c", code)
    assert done.stdout == "True True\n"
    assert "plugin early (early) is left out: ZeroDivisionError" in done.stderr


def test_plugins_are_loaded_once_and_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("second", "first"):
        code = f"print({name!r})\nfrom autotune.ops import OPS\nlist(OPS)"
        installed(tmp_path, name, code)
    code = "from autotune.ops import OPS; list(OPS); print('none' in OPS); list(OPS)"
    assert python(tmp_path, "-c", code).stdout == "first\nsecond\nFalse\n"
