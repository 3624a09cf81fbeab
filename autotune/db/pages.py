"""Rows in the pages of an SQLite file, found without its B-trees. In: a damaged file. Out: what
the cells of its table leaves hold, whatever became of the pages that led there.

After the file format's documentation (sqlite.org/fileformat2.html). Standard library only.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.db.place import descriptor, wal_of

_HEADER_BYTES = 100
_LEAF = 0x0D
_USUAL_PAGE_BYTES = 4096
_LARGEST_ROW_BYTES = 64 << 20
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
"""Sizes and kinds of SQLite's file format (sqlite.org/fileformat2.html); the largest row is
chosen."""
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
"""By serial type."""
Row = tuple[int, list[Any]]
"""Its number, and its columns."""


def rows(path: Path) -> Iterator[Row]:
    """The rows of every table in the file and its -wal; a cell that is none is left out."""
    with contextlib.ExitStack() as opened:
        pages = _Pages(_mapped(opened, path), _mapped(opened, wal_of(path)))
        unused = pages.unused()
        for number in range(1, pages.count + 1):
            if number not in unused:
                yield from _leaf(pages, number)


def _mapped(opened: contextlib.ExitStack, path: Path) -> mmap.mmap | bytes:
    try:
        file = opened.enter_context(descriptor(path))
        return opened.enter_context(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # there is none, or nothing in it
        return b""


class _Pages:
    """Pages by number, the first is 1: those of the -wal's last commit before the file's own."""

    def __init__(self, data: mmap.mmap | bytes, wal: mmap.mmap | bytes) -> None:
        size = int.from_bytes(data[16:18], "big")
        size = 65536 if size == 1 else size
        self.size = size if size >= 512 and size & (size - 1) == 0 else _USUAL_PAGE_BYTES
        reserved = data[20] if len(data) > 20 and data[20] <= 32 else 0
        self.usable = self.size - reserved
        self._data, self._wal = data, wal
        self._newer = self._frames()
        self.count = max([len(data) // self.size, *self._newer])

    def __getitem__(self, number: int) -> bytes:
        if number in self._newer:
            start = self._newer[number]
            return self._wal[start : start + self.size]
        start = (number - 1) * self.size
        return self._data[start : start + self.size] if number > 0 else b""

    def unused(self) -> set[int]:
        """Pages of the free list: what they hold was deleted."""
        found: set[int] = set()
        trunk = int.from_bytes(self[1][32:36], "big")
        while 0 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            page = self[trunk]
            following, count = struct.unpack(">II", page[:8])
            leaves = page[8 : 8 + 4 * min(count, (self.usable - 8) // 4)]
            found.update(struct.unpack(f">{len(leaves) // 4}I", leaves))
            trunk = following
        return found

    def _frames(self) -> dict[int, int]:
        """Page -> where it is in the -wal, up to the last commit."""
        salts = self._wal[16:24]
        step = _FRAME_HEADER_BYTES + self.size
        committed: dict[int, int] = {}
        pending: dict[int, int] = {}
        for start in range(_WAL_HEADER_BYTES, len(self._wal) - step + 1, step):
            number, commit = struct.unpack(">II", self._wal[start : start + 8])
            if self._wal[start + 8 : start + 16] != salts:
                break
            pending[number] = start + _FRAME_HEADER_BYTES
            if commit:
                committed.update(pending)
                pending.clear()
        return committed


def _leaf(pages: _Pages, number: int) -> Iterator[Row]:
    """The rows of a page, if it is a leaf of a table."""
    page, base = pages[number], _HEADER_BYTES if number == 1 else 0
    if len(page) < pages.size or page[base] != _LEAF:
        return
    count = int.from_bytes(page[base + 3 : base + 5], "big")
    for place in range(base + 8, min(base + 8 + 2 * count, pages.usable - 1), 2):
        start = int.from_bytes(page[place : place + 2], "big")
        try:
            yield _cell(pages, page, start)
        except (IndexError, ValueError, struct.error):
            continue


def _cell(pages: _Pages, page: bytes, start: int) -> Row:
    length, start = _varint(page, start)
    rowid, start = _varint(page, start)
    if rowid >= 1 << 63:
        rowid -= 1 << 64
    if not 0 < length <= _LARGEST_ROW_BYTES:
        raise ValueError(length)
    most = pages.usable - 35
    least = (pages.usable - 12) * 32 // 255 - 23
    local = length
    if length > most:
        local = least + (length - least) % (pages.usable - 4)
        local = local if local <= most else least
    payload = page[start : start + local]
    if local < length:
        payload += _overflow(pages, page[start + local : start + local + 4], length - local)
    if len(payload) != length:
        raise ValueError(length)
    return rowid, _columns(payload)


def _overflow(pages: _Pages, pointer: bytes, length: int) -> bytes:
    """What of a row did not fit on its page."""
    parts, seen = [], set[int]()
    number = int.from_bytes(pointer, "big")
    while length > 0:
        if number in seen or not 0 < number <= pages.count:
            raise ValueError(number)
        seen.add(number)
        page = pages[number]
        parts.append(page[4 : 4 + min(length, pages.usable - 4)])
        length -= len(parts[-1]) or length
        number = int.from_bytes(page[:4], "big")
    return b"".join(parts)


def _columns(payload: bytes) -> list[Any]:
    end, place = _varint(payload, 0)
    kinds = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values = []
    for kind in kinds:
        size = (kind - 12) // 2 if kind >= 12 else (8 if kind == 7 else 0)
        if 0 < kind < len(_INTEGER_BYTES):
            size = _INTEGER_BYTES[kind]
        values.append(_value(kind, payload[end : end + size]))
        end += size
    if end != len(payload):
        raise ValueError(end)
    return values


def _value(kind: int, data: bytes) -> Any:
    if kind == 0:
        return None
    if kind < len(_INTEGER_BYTES):
        return int.from_bytes(data, "big", signed=True)
    if kind == 7:
        return struct.unpack(">d", data)[0]
    if kind in (8, 9):
        return kind - 8
    if kind < 12:
        raise ValueError(kind)
    return data.decode("utf-8", "surrogateescape") if kind % 2 else bytes(data)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Big-endian base 128, nine bytes at most, and where it ends."""
    value = 0
    for number in range(8):
        byte = data[place + number]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + number + 1
    return value << 8 | data[place + 8], place + 9
