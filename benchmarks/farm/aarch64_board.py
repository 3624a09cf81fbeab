"""A whole aarch64 board on this machine: Debian's arm64 Python under qemu-user, without llvmlite.

In: a folder, arguments of `rpc_server serve`. Out: a board, which has to be given objects.
Debian's packages and PyPI's wheels are fetched into the folder and unpacked there: nothing is
installed, no root is needed, and a second start finds everything.

Usage: python benchmarks/farm/aarch64_board.py [--folder build/aarch64] --listen 127.0.0.1:9190
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = "qemu-aarch64"
PACKAGES = ("python3", "libstdc++6", "libgcc-s1")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
OURS = ("autotune", "rpc_server", "search_spaces", "cost_model")
NEEDED = (
    "rpc_server.__main__", "rpc_server.commands", "autotune.measure.worker",
    "autotune.measure.execute",
)  # fmt: skip
PROGRAM = """#!/bin/sh
exec env PYTHONHOME={root}/usr PYTHONPATH={site}:{code} OPENBLAS_NUM_THREADS=1 \\
    {emulator} -0 {program} -L {root} {python} "$@"
"""


def prepare(folder: Path) -> Path:
    """The arm64 Python with this tree's packages. Raises RuntimeError naming what is missing."""
    for name, package in ((EMULATOR, "qemu-user"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if not shutil.which(name):
            raise RuntimeError(f"{name} is missing: apt-get install {package}")
    system = folder / "system"
    if not system.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            fetch(Path(name))
            Path(name, "system").rename(system)
    root, site, code = (system / n for n in ("root", "site", "code"))
    (python,) = root.glob("usr/bin/python3.[0-9]*[0-9]")
    copy_ours(code, python)
    program = system / "python"
    program.write_text(
        PROGRAM.format(
            root=root, site=site, code=code, emulator=shutil.which(EMULATOR), program=program,
            python=python,
        )
    )  # fmt: skip
    program.chmod(0o755)
    if not _same_version(python):  # it makes its own byte code, once, while it may still write
        again = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([program, "-P", "-c", f"import {', '.join(NEEDED)}"], check=True, env=again)
    return program


def fetch(folder: Path) -> None:
    """Debian's packages, unpacked, and the wheels that a board needs, in `folder`/system."""
    root, site, debs = (folder / n for n in ("system/root", "system/site", "cache/archives"))
    for path in (root, site, debs / "partial", folder / "lists/partial", folder / "state"):
        path.mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": folder / "state",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _run(*apt, "update")
    _run(*apt, "install", "-y", "--no-install-recommends", "--download-only", *PACKAGES)
    for package in debs.glob("*.deb"):
        _run("dpkg-deb", "-x", str(package), str(root))
    (python,) = root.glob("usr/bin/python3.[0-9]*[0-9]")
    version = python.name.removeprefix("python")
    _run(
        sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
        "--no-warn-script-location", "--no-compile", "--only-binary=:all:", "--target", str(site),
        *(f"--platform={p}" for p in PLATFORMS), f"--python-version={version}",
        "--implementation=cp", "numpy>=1.26", f"rpyc=={metadata.version('rpyc')}",
    )  # fmt: skip
    _compile(python, [site, root / "usr/lib" / python.name])


def copy_ours(code: Path, python: Path) -> None:
    """This tree's packages as a wheel would install them."""
    shutil.rmtree(code, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in OURS:
        shutil.copytree(ROOT / name, code / name, ignore=ignore)
    shutil.copytree(ROOT / "configs", code / "autotune/configs", ignore=ignore)
    _compile(python, [code])


def _compile(python: Path, folders: Sequence[Path]) -> None:
    """Byte code is the same on all machines."""
    if _same_version(python):
        skipped = r"/(tests?|testing|lib2to3)/"
        command = [sys.executable, "-m", "compileall", "-q", "-j2", "-x", skipped]
        subprocess.run([*command, *map(str, folders)], check=False, capture_output=True)


def _same_version(python: Path) -> bool:
    return python.name == "python" + ".".join(platform.python_version_tuple()[:2])


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip()[-500:]
        raise RuntimeError(f"{command[0]} failed, which the aarch64 board needs: {last}")


def serve_command(program: Path, arguments: Sequence[str]) -> list[str]:
    """What starts the board."""
    return [str(program), "-P", "-m", "rpc_server", "serve", "--target", "cortex-a72",
            "--accept-objects", *arguments]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build/aarch64")
    options, rest = parser.parse_known_args()
    try:
        command = serve_command(prepare(options.folder), rest)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
