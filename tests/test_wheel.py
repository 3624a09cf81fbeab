"""The wheel holds the four packages and the configs, and nothing else; it installs and tunes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autotune", "cost_model", "rpc_server", "search_spaces")


def test_every_folder_with_code_is_listed_as_a_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    configs = {
        ".".join(("autotune", *path.parent.relative_to(ROOT).parts))
        for path in (ROOT / "configs").rglob("__init__.py")
    }
    assert listed == folders | configs


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, so that nothing is left in it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "configs"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, tree)
    (built,) = out.iterdir()
    return built


@pytest.mark.slow
def test_the_wheel_holds_packages_and_configs_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert tops == set(PACKAGES)
    shipped = {n for n in names if n.endswith(".toml")}
    configs = {f"autotune/{p.relative_to(ROOT)}" for p in (ROOT / "configs").rglob("*.toml")}
    assert shipped == configs
    assert "autotune/py.typed" in names
    assert not [n for n in names if "test" in n.lower()]


@pytest.mark.slow
def test_the_wheel_installs_in_an_empty_environment_and_tunes(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin/python")
    run(*pip, "install", "--quiet", "--no-compile", wheel)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    options = {"cwd": tmp_path, "env": environment}
    out = run(venv / "bin/autotune", "tune", "zoo:tiny", "--trials", "12", **options)
    assert "ended:" in out
    assert "cpu-" in run(venv / "bin/autotune", "query", "zoo:tiny", **options)
    assert "cortex-a72" in run(venv / "bin/autotune", "targets", **options)
    assert "median of" in run(venv / "bin/autotune", "bench", "zoo:tiny", "--brief", **options)
