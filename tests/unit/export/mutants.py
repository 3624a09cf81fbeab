"""Files that are almost sound. In: a file's bytes, a seeded generator. Out: the bytes, damaged as
disks, links and hostile hands do it."""

from __future__ import annotations

import io
import json
import random
import zipfile

_WIDTHS = (2, 4, 8)
"""Bytes of numbers in files."""
_EXTREMES = (0, 1, -1, 0x7F, 0x7FFF, 0x7FFFFFFF, 1 << 31, 1 << 40, (1 << 63) - 1)
_MOST_BLOCK = 4096
"""Bytes that are moved at most."""
WRONG = (None, -1, 1 << 70, "x", [], {}, 0.5, True, 0)
"""Values for fields of a manifest."""


def mutant(data: bytes, draw: random.Random) -> bytes:
    """One to four damages."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if out:
            draw.choice(DAMAGES)(out, draw)
    return bytes(out)


def flip(data: bytearray, draw: random.Random) -> None:
    """A few bits, near one another or anywhere."""
    at = draw.randrange(len(data))
    for _ in range(draw.randrange(1, 9)):
        data[at] ^= 1 << draw.randrange(8)
        near = min(len(data) - 1, at + draw.randrange(9))
        at = near if draw.random() < 0.5 else _place(data, draw)


def cut(data: bytearray, draw: random.Random) -> None:
    """The end is missing, or the beginning."""
    at = _place(data, draw)
    if draw.random() < 0.8:
        del data[at:]
    else:
        del data[:at]


def extend(data: bytearray, draw: random.Random) -> None:
    """There is more than there was: bytes of its own, or any."""
    count, at = draw.randrange(1, _MOST_BLOCK), _place(data, draw)
    more = bytes(data[at : at + count]) if draw.random() < 0.5 else draw.randbytes(count)
    where = len(data) if draw.random() < 0.5 else at
    data[where:where] = more


def number(data: bytearray, draw: random.Random) -> None:
    """A number, such as a length, is another one: an extreme, or off by a little."""
    width = draw.choice(_WIDTHS)
    at = _place(data, draw) // 2 * 2
    old = int.from_bytes(data[at : at + width], "little")
    new = old + draw.choice((-8, -1, 1, 8, 64)) if draw.random() < 0.5 else draw.choice(_EXTREMES)
    data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")[: len(data) - at]


def swap(data: bytearray, draw: random.Random) -> None:
    """Two blocks have changed places."""
    size = draw.randrange(1, min(_MOST_BLOCK, len(data) // 2 + 1) + 1)
    first, second = sorted((_place(data, draw), _place(data, draw)))
    size = min(size, second - first, len(data) - second)
    here, there = bytes(data[first : first + size]), bytes(data[second : second + size])
    data[first : first + size], data[second : second + size] = there, here


def blank(data: bytearray, draw: random.Random) -> None:
    """A block is zeros, as where a disk was full."""
    at = _place(data, draw)
    size = min(draw.randrange(1, _MOST_BLOCK), len(data) - at)
    data[at : at + size] = bytes(size)


DAMAGES = (flip, flip, cut, extend, number, number, swap, blank)


def _place(data: bytearray, draw: random.Random) -> int:
    """Anywhere, and more often near the ends, where headers and tables are."""
    near = min(len(data), 2048)
    where = draw.random()
    if where < 0.25:
        return draw.randrange(near)
    return len(data) - 1 - draw.randrange(near if where < 0.5 else len(data))


def respelt(data: bytes, draw: random.Random) -> bytes:
    """An artifact whose manifest is wrong or whose parts have changed places, and whose checksums
    fit: what somebody makes who knows the format, or an earlier version with a defect."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != "check"}
    manifest = json.loads(parts["manifest.json"])
    for _ in range(draw.randrange(1, 4)):
        spoil(manifest, draw)
    parts["manifest.json"] = json.dumps(manifest).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return out.getvalue()


def exchanged(data: bytes, draw: random.Random) -> bytes:
    """An artifact two of whose parts have changed places, each with a checksum that fits."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    one, other = draw.sample(sorted(parts), 2)
    parts[one], parts[other] = parts[other], parts[one]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return out.getvalue()


def spoil(value: object, draw: random.Random) -> None:
    """Exchange something within it."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if draw.random() < 0.3 or not isinstance(value[key], dict | list) or not value[key]:
            value[key] = draw.choice(WRONG)
            return
        value = value[key]
