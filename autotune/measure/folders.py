"""Temporary directories of workers, and how they go. In: nothing. Out: an empty directory that its
maker holds by a lock.

What was written there is a stranger's: a tree deeper than the stack, links, file systems mounted
below it. So removal works on descriptors, follows no link, and stays in the mount that the
directory is in, told by the kernel's number of it: a bind mount has the device of its source.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import logging
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.measure.environment import COMPILER
from autotune.measure.sandbox import FIRST_USER, LAST_USER
from autotune.printable import printable

PREFIX = "autotune-worker"
_NAME = re.compile(rf"{PREFIX}-([0-9]+)-\w+")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE, _DETACH = 16384 | 1 << 18, 2
"""Flags of mount and umount2 (Linux)."""
_MOST_MOUNTS = 100
"""On one place, each over the one before."""
_NAME_SHOWN = 100
"""Characters of a file's name in a message."""

log = logging.getLogger(__name__)


class WorkerFolder:
    """A new directory. Those of makers that were killed go."""

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        sweep(root)
        self.path, self._held = _locked(root)

    def empty(self) -> None:
        """Remove what is in it; a compiler's, which it makes only once, stays, emptied."""
        _empty(self._held)

    def size(self) -> int:
        """Bytes of the files in it, while somebody may be changing it."""
        return _size_of(self.path, self._held)

    def remove(self) -> None:
        """As far as that is possible; what stays is said in one line. Once."""
        try:
            _remove(self._held, self.path)
        finally:
            os.close(self._held)


def _locked(root: Path) -> tuple[Path, int]:
    """A new directory and the descriptor that holds it; one of whom a lock is shared."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=root))
        held = os.open(path, _DIRECTORY)
        with contextlib.suppress(OSError):  # some file systems of networks have no locks
            fcntl.flock(held, fcntl.LOCK_SH)
        if os.fstat(held).st_nlink:
            return path, held
        os.close(held)  # taken for an abandoned one before it was held


def sweep(root: Path) -> None:
    """Remove the directories of workers whose maker is gone: this user's, and nobody's cwd."""
    for name in os.listdir(root):
        match = _NAME.fullmatch(name)
        if match and not Path("/proc", match[1]).exists():
            with contextlib.suppress(OSError):
                _sweep(root, name)


def _sweep(root: Path, name: str) -> None:
    """One of them, where it is abandoned. Raises OSError where it can't be looked at."""
    with _opened(root) as outer, _opened(name, outer) as held:
        if _mount(held) != _mount(outer):
            _say(f"{root / name} is left: something is mounted there")
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _own(os.fstat(held)) and not _entered(held):
            _remove(held, root / name)


def _own(status: os.stat_result) -> bool:
    """Made by this user, or given by it to a worker."""
    user = os.geteuid()
    return status.st_uid == user or (user == 0 and FIRST_USER <= status.st_uid <= LAST_USER)


def _entered(held: int) -> bool:
    """A living process has it as its working directory."""
    sought = os.fstat(held)
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{process}/cwd"), sought):
                return True
    return False


def empty(path: Path) -> None:
    """Empty any directory as WorkerFolder.empty does."""
    with contextlib.suppress(OSError), _opened(path) as held:
        _empty(held)


def _empty(held: int) -> None:
    _clear(held, kept=COMPILER)
    with contextlib.suppress(OSError), _opened(COMPILER, held) as inner:
        if _mount(inner) == _mount(held):
            _clear(inner)
            return
    with contextlib.suppress(OSError):
        _gone(held, COMPILER)


def _remove(held: int, path: Path) -> None:
    """An open directory with what is in it."""
    left: list[str] = []
    try:
        left = _clear(held)
        with _opened(path.parent) as outer:
            _uncover(outer, path.name)
            found = os.stat(path.name, dir_fd=outer, follow_symlinks=False)
            if os.path.samestat(found, os.fstat(held)):
                os.rmdir(path.name, dir_fd=outer)
    except FileNotFoundError:
        return
    except OSError as error:
        first = f", `{printable(left[0])[:_NAME_SHOWN]}` in it" if left else ""
        _say(f"{path} is left: {error.strerror}{first}")


@functools.lru_cache(64)
def _say(line: str) -> None:
    """Once."""
    log.warning("%s", line)


def _clear(top: int, kept: str = "") -> list[str]:
    """Remove what is in a directory but `kept`; names of what could not go. However deep it is,
    two descriptors do: what is below the first level is moved up to it before it goes."""
    with contextlib.suppress(OSError):
        os.fchmod(top, 0o700)
    left: list[str] = []
    fresh = map(f".{secrets.token_hex(8)}-{{}}".format, itertools.count())
    waiting = [name for name in os.listdir(top) if name != kept]
    while waiting:
        name = waiting.pop()
        try:
            if not _gone(top, name):
                with _opened(name, top) as inner:
                    waiting += _moved_up(inner, top, fresh, left)
                os.rmdir(name, dir_fd=top)
        except OSError:
            left.append(name)
    return left


def _moved_up(inner: int, top: int, fresh: Iterator[str], left: list[str]) -> list[str]:
    """Remove what is in a directory; its directories that are not empty get new names in `top`."""
    if _mount(inner) != _mount(top):
        return []
    moved = []
    for name in os.listdir(inner):
        try:
            if not _gone(inner, name):
                aim = next(fresh)
                os.rename(name, aim, src_dir_fd=inner, dst_dir_fd=top)
                moved.append(aim)
        except OSError:
            left.append(name)
    return moved


def _gone(where: int, name: str) -> bool:
    """Remove a file, a link or an empty directory; False where it is a directory with something
    in it, which can be entered now. Raises OSError where it stays."""
    if _removed(where, name):
        return True
    _uncover(where, name)
    if _removed(where, name):
        return True
    with _opened(name, where):
        return False


def _removed(where: int, name: str) -> bool:
    for remove in (os.unlink, os.rmdir):
        try:
            remove(name, dir_fd=where)
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return False


def _uncover(where: int, name: str) -> None:
    """Detach what is mounted on an entry, and let its owner into a directory. Raises OSError."""
    for _ in range(_MOST_MOUNTS):
        entry = os.open(name, _PATH, dir_fd=where)
        try:
            if _mount(entry) == _mount(where):
                if stat.S_ISDIR(os.fstat(entry).st_mode):
                    os.chmod(f"/proc/self/fd/{entry}", 0o700)
                return
            _detach(entry)
        finally:
            os.close(entry)


def _detach(entry: int) -> None:
    """Unmount the mount whose root is open, with those in it. It is cut off from those that it
    was copied from first: they would lose what is mounted in them, too."""
    libc, target = _libc(), f"/proc/self/fd/{entry}".encode()
    private = libc.mount(None, target, None, ctypes.c_ulong(_PRIVATE), None) == 0
    if not private or libc.umount2(target, _DETACH) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(descriptor: int) -> str:
    """The kernel's number of the mount that an open file is in. Raises OSError."""
    if sys.platform != "linux":
        return str(os.fstat(descriptor).st_dev)
    text = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    return next(line for line in text.splitlines() if line.startswith("mnt_id:"))


@contextlib.contextmanager
def _opened(name: str | Path, where: int | None = None) -> Iterator[int]:
    """A directory that is no link. Raises OSError."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=where)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size_of(folder: Path, held: int) -> int:
    """Bytes of the files in a directory that `held` has open: not of what is mounted in it."""
    total, waiting = 0, [str(folder)]
    while waiting:
        where = waiting.pop()
        with contextlib.suppress(OSError), _opened(where) as inner:
            if _mount(inner) != _mount(held):
                continue
            with os.scandir(inner) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(os.path.join(where, entry.name))
                    else:
                        total += _blocks(inner, entry.name)
    return total


def _blocks(where: int, name: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(name, dir_fd=where, follow_symlinks=False).st_blocks * 512
    return 0
