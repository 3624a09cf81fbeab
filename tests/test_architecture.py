"""docs/ARCHITECTURE.md is true: it names every folder of the product, and files that exist, and
the way that a convolution takes. So is the glossary: its steps exist.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import autotune
from autotune.request import NOMINAL
from autotune.rewrite.files import shipped
from autotune.schedule import STEPS
from autotune.types import Task
from search_spaces.builder import ScheduleBuilder
from tests.unit.frontend.onnx_models import node_model

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
PRODUCT = ("autotune", "cost_model", "rpc_server", "search_spaces", "configs")


def rows() -> dict[str, str]:
    """Folder -> the file to open first, by the table."""
    return dict(re.findall(r"^\| `([\w/]+)/` \| .+ \| `([\w./-]+)` \|$", PAGE, re.MULTILINE))


def test_every_folder_is_in_the_table_once() -> None:
    folders = {
        str(path.parent.relative_to(ROOT))
        for name in (*PRODUCT, "benchmarks")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    data = {folder for folder in folders if folder.startswith("benchmarks/data/")}
    assert set(rows()) == (folders | {"configs"}) - data
    assert len(re.findall(r"^\| `[\w/]+/` \|", PAGE, re.MULTILINE)) == len(rows())


def test_the_name_of_a_class_means_one_thing() -> None:
    found: dict[str, list[Path]] = {}
    for path in (p for name in PRODUCT for p in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.relative_to(ROOT))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_the_file_to_open_first_is_in_its_folder() -> None:
    for folder, file in rows().items():
        assert (ROOT / file).is_file(), file
        assert file.startswith(f"{folder}/"), file


def test_every_path_of_the_page_exists() -> None:
    for path in re.findall(
        r"`((?:autotune|cost_model|rpc_server|search_spaces|tests)/[\w./]+)`", PAGE
    ):
        assert (ROOT / path).exists(), path


def test_every_pass_has_a_reason_why_it_is_no_rule() -> None:
    folder = ROOT / "autotune/graph/passes"
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|((?: `[\w-]+`)*) \|$", PAGE, re.MULTILINE)
    there = sorted(p.stem for p in folder.glob("[!_]*.py"))
    assert [name for name, _, _ in told] == there
    assert all(len(why) > 10 for _, why, _ in told)
    rules = {rule.name for rule in shipped()}
    assert {name for _, _, named in told for name in re.findall(r"[\w-]+", named)} <= rules


def test_a_convolution_takes_the_way_that_the_page_says(tmp_path: Path) -> None:
    told = [(p, f) for p, f in re.findall(r"^\d+\. `([\w/.]+)` `(\w+)`", PAGE, re.MULTILINE)]
    model = tmp_path / "conv.onnx"
    model.write_bytes(convolution())
    autotune.compile("zoo:tiny", machine=NOMINAL)  # what is loaded once is no part of it
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        entered.extend([(file, frame.f_code.co_name)] if event == "call" else [])

    sys.setprofile(note)
    try:
        autotune.compile(str(model), machine=NOMINAL)
    finally:
        sys.setprofile(None)
    first = list(dict.fromkeys(call for call in entered if call in told))
    assert len(told) > 20
    assert first == told


def convolution() -> bytes:
    """A model of one 3x3 convolution of 64 channels."""
    x, weights = np.zeros((1, 64, 56, 56), np.float32), np.ones((64, 64, 3, 3), np.float32)
    return node_model("Conv", {"x": x}, [weights], pads=[1, 1, 1, 1]).SerializeToString()


def test_the_steps_of_the_glossary_exist() -> None:
    page = (ROOT / "docs/GLOSSARY.md").read_text(encoding="utf-8")
    named = re.findall(r"\bsteps?\s`(\w+)`(?:(?:,| and) `(\w+)`)?", page)
    assert len(named) >= 8
    assert [step for pair in named for step in pair if step and step not in STEPS] == []


def test_each_schedule_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    init = ScheduleBuilder.__init__

    def note(self: ScheduleBuilder, task: Task) -> None:
        written.append(task.key)
        init(self, task)

    def again(*_: object) -> None:
        raise AssertionError("the program of a default is that which its rule wrote")

    monkeypatch.setattr(ScheduleBuilder, "__init__", note)
    monkeypatch.setattr("autotune.measure.build_task.apply_schedule", again)
    image = autotune.compile("zoo:tiny", machine=NOMINAL).image
    assert len(written) == len(set(written)) == len({kernel.symbol for kernel in image.kernels})
