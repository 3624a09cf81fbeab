"""Worker folders with file systems mounted below them, in a mount namespace of one's own.

`python -m tests.unit.measure.mounted CASE FOLDER` runs one case; `in_namespace` does so where
mounts end with the process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from autotune.measure.folders import WorkerFolder, sweep
from tests.needs import namespace

ROOT = Path(__file__).parents[3]


def in_namespace(case: str, folder: Path) -> str:
    """What was written to standard error."""
    command = [*namespace(), sys.executable, "-m", "tests.unit.measure.mounted", case, str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def without_capabilities() -> None:
    """As root is whom its system lets mount nothing; modes of files hold for it, too."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0


def foreign(root: Path) -> Path:
    """Somebody's folder, not empty, on the file system of the worker's."""
    (root / "foreign" / "deep").mkdir(parents=True)
    (root / "foreign" / "deep" / "file").write_text("x")
    return root / "foreign"


def whole(path: Path) -> None:
    assert (path / "deep" / "file").read_text() == "x"


def below(root: Path) -> None:
    """Bound three times: in the folder, deeper, and over a directory with files."""
    folder, source = WorkerFolder(), foreign(root)
    for where in ("a", "b/c/d", "pocl/kernels"):
        (folder.path / where).mkdir(parents=True)
        (folder.path / where / "own").write_text("x")
        mount("--bind", source, folder.path / where)
    mount("--bind", source, folder.path / "a")
    folder.empty()
    assert os.listdir(folder.path) == ["pocl"]
    assert not os.listdir(folder.path / "pocl")
    whole(source)
    folder.remove()
    assert not folder.path.exists()
    whole(source)


def over(root: Path) -> None:
    """Bound over the folder itself, over the compiler's, and over a file."""
    folder, source = WorkerFolder(), foreign(root)
    (folder.path / "pocl").mkdir()
    (folder.path / "file").touch()
    mount("--bind", source, folder.path / "pocl")
    mount("--bind", source / "deep" / "file", folder.path / "file")
    mount("--bind", source, folder.path)
    folder.empty()
    whole(source)
    folder.remove()
    assert not folder.path.exists()
    whole(source)


def shared(root: Path) -> None:
    """What is mounted in the source of a bind mount stays mounted there."""
    folder, source = WorkerFolder(), root / "shared"
    source.mkdir()
    mount("-t", "tmpfs", "none", source)
    mount("--make-shared", source)
    (source / "inner").mkdir()
    mount("-t", "tmpfs", "none", source / "inner")
    (source / "inner" / "file").write_text("x")
    (folder.path / "a").mkdir()
    mount("--rbind", source, folder.path / "a")
    folder.remove()
    assert not folder.path.exists()
    assert (source / "inner" / "file").read_text() == "x"


def stale(root: Path) -> None:
    """An abandoned folder under somebody's mount is left; below one it goes."""
    source = foreign(root)
    for name in ("covered", "inside"):
        (root / f"autotune-worker-99999999-{name}" / "a").mkdir(parents=True)
    mount("--bind", source, root / "autotune-worker-99999999-covered")
    mount("--bind", source, root / "autotune-worker-99999999-inside" / "a")
    sweep(root)
    whole(source)
    whole(root / "autotune-worker-99999999-covered")
    assert not (root / "autotune-worker-99999999-inside").exists()


def refused(root: Path) -> None:
    """Where nothing may be unmounted, the rest goes, the mount stays, and one line says so."""
    folder, source = WorkerFolder(), foreign(root)
    (folder.path / "a" / "b").mkdir(parents=True)
    (folder.path / "own").touch()
    mount("--bind", source, folder.path / "a" / "b")

    without_capabilities()
    folder.remove()
    whole(source)
    assert not (folder.path / "own").exists()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
