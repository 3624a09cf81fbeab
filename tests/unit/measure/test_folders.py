"""Temporary directories of workers go whole, and nothing goes with them that is not theirs."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotune.measure import folders
from autotune.measure.folders import WorkerFolder, empty, sweep
from tests.needs import needs
from tests.unit.measure.mounted import in_namespace, without_capabilities


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def abandoned(root: Path, name: str = "gone") -> Path:
    path = root / f"autotune-worker-99999999-{name}"
    (path / "left").mkdir(parents=True)
    return path


def deep(folder: Path, depth: int) -> None:
    """A chain of directories, deeper than a path or a stack is long."""
    where = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=where)
        inner = os.open("d", os.O_RDONLY, dir_fd=where)
        os.close(where)
        where = inner
    os.close(where)


@needs("mounts")
@pytest.mark.parametrize("case", ["below", "over", "shared", "stale"])
def test_what_is_mounted_in_a_folder_is_unmounted_and_stays_whole(
    case: str, tmp_path: Path
) -> None:
    in_namespace(case, tmp_path)


@needs("mounts")
def test_a_mount_that_cannot_go_stays_and_is_named_in_one_line(tmp_path: Path) -> None:
    (line,) = in_namespace("refused", tmp_path).splitlines()
    assert "autotune-worker-" in line
    assert "is left: Directory not empty" in line


def test_links_go_and_what_they_point_to_stays(root: Path) -> None:
    kept = root / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    folder = WorkerFolder()
    (folder.path / "inner").mkdir()
    for where in ("to_folder", "inner/to_folder", "pocl"):
        (folder.path / where).symlink_to(kept)
    (folder.path / "to_file").symlink_to(kept / "file")
    os.link(kept / "file", folder.path / "same_file")
    folder.empty()
    assert not os.listdir(folder.path)
    folder.path.rmdir()
    folder.path.symlink_to(kept)
    folder.remove()
    assert (kept / "file").read_text() == "x"


@pytest.mark.usefixtures("root")
def test_a_tree_deeper_than_the_stack_goes() -> None:
    folder = WorkerFolder()
    deep(folder.path, 3 * sys.getrecursionlimit())
    assert folder.size() == 0
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.usefixtures("root")
def test_directories_that_nobody_may_enter_go() -> None:
    pid = os.fork()
    if pid == 0:
        gone = False
        try:
            without_capabilities()
            gone = _locked_up()
        finally:
            os._exit(0 if gone else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _locked_up() -> bool:
    folder = WorkerFolder()
    (folder.path / "a" / "b" / "c").mkdir(parents=True)
    for where in ("a/b/c", "a/b", "a", ""):
        (folder.path / where).chmod(0)
    folder.remove()
    return not folder.path.exists()


def test_an_emptied_directory_keeps_that_of_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "pocl" / "kernels").mkdir(parents=True)
    (tmp_path / "left").mkdir()
    (tmp_path / "file").write_text("x")
    empty(tmp_path)
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*")] == [Path("pocl")]


def test_an_abandoned_folder_goes(root: Path) -> None:
    path = abandoned(root)
    WorkerFolder().remove()
    assert not path.exists()


def test_folders_of_others_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other users, with other names, links, and those of processes that live."""
    named = root / "autotune-worker-99999999"
    other = root / "autotune-worker-99999999-x.d"
    live = root / f"autotune-worker-{os.getpid()}-live"
    for path in (named, other, live):
        path.mkdir()
    link = root / "autotune-worker-99999999-link"
    link.symlink_to(named)
    (named / "file").touch()
    sweep(root)
    assert (named / "file").exists()
    assert other.exists()
    assert live.exists()
    assert link.is_symlink()
    path = abandoned(root)
    monkeypatch.setattr(folders.os, "geteuid", lambda: os.getuid() + 12345)
    sweep(root)
    assert path.exists()


def test_a_folder_that_a_process_holds_stays(root: Path) -> None:
    """A maker in another process namespace has a number that nobody has here; a worker that
    outlived its maker works there."""
    path = abandoned(root)
    held = os.open(path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    sweep(root)
    assert path.exists()
    os.close(held)
    with subprocess.Popen(["sleep", "60"], cwd=path) as worker:
        sweep(root)
        assert path.exists()
        worker.kill()
    sweep(root)
    assert not path.exists()


def test_two_makers_take_no_folder_from_each_other(root: Path) -> None:
    first, second = WorkerFolder(), WorkerFolder()
    sweep(root)
    assert first.path.exists()
    first.remove()
    assert second.path.exists()
    second.remove()
    assert not os.listdir(root)


@pytest.mark.usefixtures("root")
def test_what_stays_is_said_in_one_line_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = WorkerFolder()
    (folder.path / "\x1b[2J\nname").touch()

    def refused(_where: int, _name: str) -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(folders, "_gone", refused)
    with caplog.at_level(logging.WARNING):
        folder.remove()
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert "`\\x1b[2J\\nname` in it" in record.getMessage()
