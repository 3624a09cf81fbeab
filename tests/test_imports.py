"""Who imports whom: only downward, folder by folder, and what a board or a compiled model needs is
little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autotune", "cost_model", "rpc_server", "search_spaces")

# Lowest first, one folder (or module beside the folders) each, and why it is above those before.
# A module may import its own folder and those before it in this list.
LAYERS = (
    ("autotune.printable", "texts: any message shows some"),
    ("autotune.errors", "every folder raises them"),
    ("autotune.parse_int", "texts: digits of numbers that users gave"),
    ("autotune.arguments", "checks of what a caller gives, ends in errors"),
    ("autotune.command_line", "arguments of commands, whose errors are one line"),
    ("autotune.defects", "errors that are no user's fault, made printable"),
    ("autotune.plugins", "packages beside this one that fill registries"),
    ("autotune.registry", "names of what folders hold, a duplicate is an error"),
    ("autotune.release", "the version of this package, and what of it is installed"),
    ("autotune.streams", "standard output that may go away"),
    ("autotune.atomic_file", "files written in one step"),
    ("autotune.memory", "blocks of memory, aligned: of the system, not of a tensor"),
    ("autotune.exactness", "how exact results are to be"),
    ("autotune.caches", "what the system tells of caches"),
    ("autotune.tile_permission", "what the system lets a process do, asked for"),
    ("autotune.cpu_features", "what the system tells of the processor"),
    ("autotune.systems", "what a triple says of the operating system"),
    ("autotune.sizes", "integer expressions of what only a run knows, in place of integers"),
    ("autotune.shapes", "shapes with sizes among them, by rules of numpy"),
    ("autotune.op_names", "texts: ops as earlier releases named them"),
    ("autotune.types", "values that every room shares: tensor types, layouts, tasks"),
    ("autotune.stored", "elements as they lie in memory, by their types"),
    ("autotune.size_ranges", "tensor types some of whose dimensions only a run knows"),
    ("autotune.target", "what code is made for"),
    ("autotune.machine", "how fast a target's device is, and what things cost on it"),
    ("autotune.program", "the grammar of loops and values, without a word of operators"),
    ("autotune.ops", "operators say in that grammar what they compute"),
    ("autotune.tasks", "tasks of operators as naive loops, as values, as work"),
    ("autotune.graph", "nodes are operators; passes over them"),
    ("autotune.frontend", "makes graphs of models"),
    ("autotune.placement", "where a graph's values lie, and so what is a task"),
    ("autotune.schedule", "steps from program to program, from a task's naive loops on"),
    ("search_spaces", "schedules to choose from"),
    ("autotune.codegen", "programs that were scheduled, as code"),
    ("autotune.measure", "times code, and requests that hold schedules"),
    ("autotune.db", "keeps what was measured, with configs of spaces"),
    ("autotune.settings", "of a tuning run: how to measure"),
    ("autotune.request", "what a caller asks for: models, targets, settings, logs"),
    ("cost_model", "learns from what was measured and kept, predicts times in spaces"),
    ("autotune.rewrite", "graphs by proven equations, as tasks are predicted to gain by them"),
    ("rpc_server", "measures elsewhere"),
    ("autotune.runtime", "runs compiled models, on devices as measuring does"),
    ("autotune.compiler", "makes compiled models, by the log"),
    ("autotune.export", "writes compiled models for programs without Python"),
    ("autotune.fallback", "models of several stages, of which the compiler makes some"),
    ("autotune.tuner", "measures tasks by the cost model, here and elsewhere, and whole models"),
    ("autotune.report", "tells of tuning and of models"),
    ("autotune.compile", "the package's function, the compiler behind it"),
    ("autotune.torch", "PyTorch's graphs by that function"),
    ("autotune", "the public names, each loaded when it is asked for"),
    ("autotune.cli", "everything, as commands"),
    ("autotune.__main__", "the commands"),
)


def layer(module: str) -> int:
    """The number of the folder, or of the module beside the folders, that the module is in."""
    names = [name for name, _ in LAYERS]
    room = folder(module)
    assert room in names, f"{module} is in no layer; add {room} to LAYERS"
    return names.index(room)


def folder(module: str) -> str:
    """The room of a module: a folder of the top level, or of `autotune`."""
    return ".".join(module.split(".")[: 2 if module.startswith("autotune.") else 1])


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


@pytest.mark.parametrize(
    ("module", "path"), modules(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_begins_with_an_underscore_stays_in_its_folder(module: str, path: Path) -> None:
    home = module if path.name == "__init__.py" else module.rpartition(".")[0]
    private = {n for n in imports(path) if (own := private_folder(n)) and own != home}
    assert not private, f"{module} imports {', '.join(sorted(private))}: give it a public name"


def test_no_modules_import_each_other_in_a_circle() -> None:
    above = {module: imports(path) - {module} for module, path in modules()}
    while free := {module for module, names in above.items() if not names & above.keys()}:
        above = {module: names for module, names in above.items() if module not in free}
    assert not above, f"in a circle, or above one: {', '.join(sorted(above))}"


def private_folder(module: str) -> str:
    """The folder of the first part of a name that begins with an underscore; "" without one."""
    parts = module.split(".")
    private = (i for i, p in enumerate(parts) if p.startswith("_") and not p.endswith("__"))
    return ".".join(parts[: next(private, 0)])


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
    done = run_without(NOT_ON_A_BOARD, "import rpc_server.board.device, rpc_server.commands")
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
    assert [line.split()[1] for line in lines] == ["True"] * 14
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


def test_compiling_and_running_need_neither_tuner_nor_database(tmp_path: Path) -> None:
    code = """
from autotune.cli import execute
place = sys.argv[2]
print(execute(["compile", "zoo:tiny", "--log", f"{place}/none.db", "-o", f"{place}/tiny.model"]))
print(execute(["run", f"{place}/tiny.model", "--random"]))
"""
    done = run_without("xgboost,scipy,sqlalchemy,alembic,rpyc,rich", code, str(tmp_path))
    lines = done.stdout.splitlines()
    assert (lines.count("0"), done.returncode) == (2, 0), done.stderr
