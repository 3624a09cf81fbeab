"""Who imports whom: only downward, and what a board or a compiled model needs is little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autotune", "cost_model", "rpc_server", "search_spaces")

# Lowest first. A module may import its own layer and those above it in this list.
LAYERS = (
    ("autotune.errors", "autotune.types", "autotune.registry", "autotune.target",
     "autotune.digits", "autotune.memory", "autotune.release", "autotune.streams",
     "autotune.whole_file"),
    ("autotune.ops", "autotune.graph", "autotune.program", "autotune.schedule",
     "autotune.measure.types"),
    ("search_spaces", "cost_model", "autotune.frontend", "autotune.codegen", "autotune.db.types",
     "autotune.db.selection"),
    ("autotune.measure", "autotune.db", "autotune.settings", "autotune.layouts"),
    ("rpc_server", "autotune.tuner"),
    ("autotune.compiler", "autotune.runtime"),
    ("autotune.compile", "autotune.report", "autotune.tuner.api", "autotune.tuner.whole"),
    ("autotune", "autotune.cli", "autotune.__main__"),
)  # fmt: skip


def layer(module: str) -> int:
    """The layer of the longest listed name that the module is, or is inside of."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        for number, names in enumerate(LAYERS):
            if name in names and (name != "autotune" or length == len(parts)):
                return number
    raise AssertionError(f"{module} is in no layer; add it to LAYERS")


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports when it runs, inside functions too; not for types."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {n if is_module(n) else node.module for n in inner}
        pending += ast.iter_child_nodes(node)
    return {n for n in names if n.split(".")[0] in PACKAGES}


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("module", "path"), modules(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_imports_go_downward(module: str, path: Path) -> None:
    upward = {n for n in imports(path) if n != module and layer(n) > layer(module)}
    assert not upward, f"{module} imports {', '.join(sorted(upward))}, which is above it"


_WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Refuse())
"""


def run_without(blocked: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where importing the blocked packages fails."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT + code, blocked, *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip


NOT_ON_A_BOARD = "xgboost,sqlalchemy,onnx,rich,typer,click"


def test_a_board_needs_only_numpy_llvmlite_and_rpyc() -> None:
    done = run_without(NOT_ON_A_BOARD, "import rpc_server.board, rpc_server.commands")
    assert done.returncode == 0, done.stderr


def test_the_block_blocks() -> None:
    done = run_without("numpy", "import autotune.types")
    assert "numpy is blocked" in done.stderr


def test_importing_the_package_loads_nothing_else() -> None:
    code = """
import autotune
heavy = {"numpy", "xgboost", "sqlalchemy", "onnx", "llvmlite", "rpyc", "rich"}
assert callable(autotune.compile)
print(sorted(heavy & set(sys.modules)))
"""
    assert run_without("none", code).stdout == "[]\n"


def test_the_public_names_are_there() -> None:
    code = """
import autotune
import autotune.compile
for name in autotune.__all__:
    print(name, callable(getattr(autotune, name)) or name == "__version__")
assert "tune" in dir(autotune)
"""
    lines = run_without("none", code).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["True"] * 7
    with pytest.raises(AttributeError, match="no attribute 'tuna'"):
        __import__("autotune").tuna  # noqa: B018


def test_a_compiled_model_runs_without_the_compiler_s_packages(tmp_path: Path) -> None:
    import autotune

    path = tmp_path / "tiny.model"
    autotune.compile("zoo:tiny").save(path)
    code = """
import autotune
from autotune.runtime import random_feeds
model = autotune.load(sys.argv[2])
outputs = model.run(random_feeds(model.inputs, seed=0))
print(len(outputs))
"""
    done = run_without("xgboost,sqlalchemy,onnx,rpyc,rich", code, str(path))
    assert (done.stdout, done.stderr) == ("1\n", "")
