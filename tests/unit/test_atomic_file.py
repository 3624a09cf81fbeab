"""Files that appear when they are whole."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from autotune.atomic_file import atomic_file, write_text, write_together
from autotune.errors import ConfigError, LogError


def test_an_output_that_fails_half_way_leaves_the_earlier_one(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_file(file, ConfigError) as out:
            out.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "report.html"
    file.write_text("earlier")
    with pytest.raises(ConfigError, match="No space left on device; free some space"):
        fail()
    assert file.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [file]


def test_an_interrupted_output_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_file(tmp_path / "report.html", ConfigError):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_of_files_that_belong_together_one_that_fails_leaves_none(
    tmp_path: Path, there: bool
) -> None:
    """Neither new ones beside earlier ones, nor folders that were made for them."""
    folder = tmp_path / "new" / "out"
    if there:
        folder.mkdir(parents=True)
        (folder / "a").write_text("earlier")
        (folder / "other").write_text("other")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="cannot write"):
        write_together(folder, {"a": b"now", "no/such/b": b"now"}, ConfigError)
    assert sorted(tmp_path.rglob("*")) == before
    assert not there or (folder / "a").read_text() == "earlier"


def test_files_that_belong_together_are_all_there(tmp_path: Path) -> None:
    paths = write_together(tmp_path / "out", {"a": b"one", "b": b"two"}, ConfigError)
    assert [path.read_bytes() for path in paths] == [b"one", b"two"]
    assert sorted((tmp_path / "out").iterdir()) == list(paths)


def test_a_link_keeps_leading_to_its_file(tmp_path: Path) -> None:
    file, link = tmp_path / "kept", tmp_path / "link"
    file.write_text("earlier")
    link.symlink_to(file)
    write_text(link, "now", ConfigError)
    assert link.is_symlink()
    assert file.read_text() == "now"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text", ConfigError)
    reader.join()
    assert read == ["text"]
    assert pipe.is_fifo()


def test_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    write_text(tmp_path / "file", "text", ConfigError)
    assert (tmp_path / "file").stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize(
    ("place", "words"), [(".", "Is a directory"), ("no/file", "No such file")]
)
def test_where_nothing_can_be_written(place: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=rf"cannot write .*: {words}.*; choose another path"):
        write_text(tmp_path / place, "text", LogError)
