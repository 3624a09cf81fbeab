"""The sdist and the wheel made of it: the four packages and the configs, and nothing else in the
wheel; each installs, and works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist, made of a copy of the tree, and of the wheel made of it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "configs", "docs", "examples"):
        ignore = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for path in ROOT.glob("*.*"):
        if path.suffix in (".toml", ".md", ".in"):
            shutil.copy(path, tree)
    shutil.copy(ROOT / "LICENSE", tree)
    out = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found


@pytest.mark.slow
def test_the_wheel_holds_packages_and_configs_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert tops == set(PACKAGES)
    shipped = {n for n in names if n.endswith(".toml")}
    configs = {f"autotune/{p.relative_to(ROOT)}" for p in (ROOT / "configs").rglob("*.toml")}
    assert shipped == configs
    assert "autotune/py.typed" in names
    assert [n for n in names if n.endswith(".dist-info/licenses/LICENSE")]
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


@pytest.mark.slow
def test_the_sdist_holds_what_a_reader_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")}
    files = {"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "examples/mini_autotune.py"}
    assert pages | files <= names
    assert not [n for n in names if n.startswith("tests/")]


@pytest.mark.slow
def test_the_sdist_installs_beside_its_dependencies_and_compiles(
    sdist: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "--python", venv / "bin/python", *install, sdist)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    options = {"cwd": tmp_path, "env": {**environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}}
    where = "import autotune; print(autotune.__file__)"
    assert str(venv) in run(venv / "bin/python", "-c", where, **options)
    assert "usage: autotune" in run(venv / "bin/autotune", "--help", **options)
    assert "usage: rpc_server" in run(venv / "bin/rpc_server", "--help", **options)
    assert "tiny.model" in run(venv / "bin/autotune", "compile", "zoo:tiny", **options)
    assert "bert_small" in run(venv / "bin/autotune", "zoo", "list", **options)
    assert "rpi4" in run(venv / "bin/autotune", "targets", **options)
