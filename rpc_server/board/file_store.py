"""Files that clients bring to a board, by the digest of their bytes.

In: parts of files. Out: whole ones, checked. What is there already is not sent again; what is
there in part goes on from where it ended, for the same client. Those used longest ago make room.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from pathlib import Path

from rpc_server.wire.checks import WireError
from rpc_server.wire.models import PART_BYTES, FilePart

ROOM_BYTES = 1 << 30
"""Bytes of all files that a board keeps for clients."""


class FileStore:
    """Thread-safe. The files lie in a folder of their own until `close`."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room = room_bytes
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-board-")
        self._sizes: dict[str, int] = {}
        """Bytes of files, and of parts of them, by name; those used last at the end."""

    def add(self, owner: str, part: FilePart) -> int:
        """How many of its first bytes are there now. A part that does not begin there changes
        nothing. Raises WireError: no room, or bytes that do not have the digest."""
        with self._lock:
            if part.digest in self._sizes:
                self._touch(part.digest)
                return part.size
            name = self._partial(owner, part.digest)
            held = self._sizes.get(name, 0)
            if part.at != held or not (part.data or not part.size):
                return held
            self._make_room(name, len(part.data))
            with self._path(name).open("ab") as file:
                file.write(part.data)
            self._sizes[name] = held = held + len(part.data)
            if held == part.size:
                self._complete(name, part.digest)
            return held

    def put(self, data: bytes) -> str:
        """The digest of a file of the board's own."""
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if digest not in self._sizes:
                self._make_room(digest, len(data))
                self._path(digest).write_bytes(data)
                self._sizes[digest] = len(data)
        return digest

    def read(self, digest: str) -> bytes:
        """A whole file. Raises WireError where there is none."""
        with self._lock:
            self._touch(digest)
            return self._path(digest).read_bytes()

    def size(self, digest: str) -> int:
        """Bytes of a whole file. Raises WireError where there is none."""
        with self._lock:
            self._touch(digest)
            return self._sizes[digest]

    def part(self, digest: str, at: int) -> FilePart:
        """Bytes of a whole file from there on. Raises WireError where there is none."""
        with self._lock:
            self._touch(digest)
            with self._path(digest).open("rb") as file:
                file.seek(at)
                data = file.read(PART_BYTES)
            return FilePart(digest=digest, size=self._sizes[digest], at=at, data=data)

    def close(self) -> None:
        self._folder.cleanup()

    def _complete(self, name: str, digest: str) -> None:
        with self._path(name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        size = self._sizes.pop(name)
        if found != digest:
            self._path(name).unlink()
            raise WireError(f"{size} bytes came that are not file {digest[:16]}; send it again")
        self._path(name).rename(self._path(digest))
        self._sizes[digest] = size

    def _make_room(self, name: str, count: int) -> None:
        others = [one for one in self._sizes if one != name]
        used = sum(self._sizes.values()) + count
        while used > self._room and others:
            oldest = others.pop(0)
            used -= self._sizes.pop(oldest)
            self._path(oldest).unlink()
        if used > self._room:
            raise WireError(f"this board has room for {self._room} bytes of files, not {used}")

    def _touch(self, digest: str) -> None:
        if digest not in self._sizes:
            raise WireError(f"there is no file {digest[:16]} on this board; send it again")
        self._sizes[digest] = self._sizes.pop(digest)

    def _partial(self, owner: str, digest: str) -> str:
        return hashlib.sha256(f"{owner} {digest}".encode()).hexdigest() + ".part"

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name
