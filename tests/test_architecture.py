"""docs/ARCHITECTURE.md is true: it names every folder of the product, and files that exist. So is
the glossary: its steps do.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from autotune.schedule import STEPS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
PRODUCT = ("autotune", "cost_model", "rpc_server", "search_spaces", "configs")


def rows() -> dict[str, str]:
    """Folder -> the file to open first, by the table."""
    return dict(re.findall(r"^\| `([\w/]+)/` \| .+ \| `([\w./-]+)` \|$", PAGE, re.MULTILINE))


def test_every_folder_is_in_the_table_once() -> None:
    folders = {
        str(path.parent.relative_to(ROOT))
        for name in PRODUCT
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(rows()) == folders | {"configs"}
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


def test_the_steps_of_the_glossary_exist() -> None:
    page = (ROOT / "docs/GLOSSARY.md").read_text(encoding="utf-8")
    named = re.findall(r"\bsteps?\s`(\w+)`(?:(?:,| and) `(\w+)`)?", page)
    assert len(named) >= 8
    assert [step for pair in named for step in pair if step and step not in STEPS] == []
