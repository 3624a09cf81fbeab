"""Bounds of what a peer sends, found before anything is made of it.

In: bytes of a JSON text, or of an rpyc packet. Out: nothing, or ValueError. JSON of 64 KiB can
become megabytes of objects with the interpreter held, and numbers of a thousand digits take time
that grows with their square: texts are counted first, by a few passes that run at memory speed.
"""

from __future__ import annotations

import re
import struct

MAX_DEPTH = 32
"""Levels of JSON; a schedule's step in a batch has eight."""
MAX_DIGITS = 40
"""Characters of a number; a float64 has 25 at most."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or what begins as one and does not end: never tried twice from one character."""
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % (MAX_DIGITS + 1))
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def check_json(data: bytes, most_values: int) -> None:
    """Raises ValueError for more values, levels or digits than a message may have. What is no
    JSON at all may pass."""
    outside = _STRING.sub(b"", data)
    values = 1 + outside.count(b",") + outside.count(b"[") + outside.count(b"{")
    if values > most_values:
        raise ValueError(f"at most {most_values} values, got {values}")
    if _LONG_NUMBER.search(outside):
        raise ValueError(f"numbers of at most {MAX_DIGITS} digits, got a longer one")
    brackets = outside.translate(_BRACKETS, _OTHERS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise ValueError(f"brackets that match, at most {MAX_DEPTH} levels of them")


MAX_ITEMS = 256
"""Values of a packet: a call has about ten, an exception some more."""
MAX_LEVELS = 8
"""Lists and tables within each other."""
_SINGLE = frozenset(b"\x00\x01\x02\x03\x04\x05\x06") | frozenset(range(0x20, 0xF0))
"""None, empty, true, false and small integers: one byte each."""
_SHORT = {0x0A: 1, 0x0B: 2, 0x0C: 3, 0x0D: 4, 0x18: 8}
"""Bytes that follow the tag: strings of that length, and a float."""
_TUPLES = {0x10: 1, 0x11: 2, 0x12: 3, 0x13: 4}
_STR_L1, _STR_L4, _TUPLE_L1, _INT_L1, _TEXT = 0x0E, 0x0F, 0x14, 0x16, 0x08
"""Tags of rpyc's encoding (`rpyc.core.brine`)."""
_LENGTH = struct.Struct("!L")


def check_packet(data: bytes) -> None:
    """Raises ValueError for what no end of a link sends: a byte for the kind of message, then one
    value of rpyc's brine, of few parts (https://rpyc.readthedocs.io/en/latest/api/core_brine.html;
    sets, slices and integers of any length are left out)."""
    place, items = 1, 0
    waiting = [1]  # values still to come, at every level
    try:
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                continue
            waiting[-1] -= 1
            items += 1
            tag, place = data[place], place + 1
            if tag == _TEXT:
                tag, place = data[place], place + 1
                if tag not in (0x01, 0x0A, 0x0B, 0x0C, 0x0D, _STR_L1, _STR_L4):
                    raise ValueError("a text of something else than bytes")
            if tag in _TUPLES:
                waiting.append(_TUPLES[tag])
            elif tag == _TUPLE_L1:
                waiting.append(data[place])
                place += 1
            else:
                place = _after(data, tag, place)
            if items > MAX_ITEMS or len(waiting) > MAX_LEVELS:
                raise ValueError(f"more than {MAX_ITEMS} values, or {MAX_LEVELS} levels of them")
    except (IndexError, struct.error):
        raise ValueError("it ends too early") from None
    if place != len(data):
        raise ValueError(f"{len(data) - place} bytes beside its value")


def _after(data: bytes, tag: int, place: int) -> int:
    """Where the value with this tag ends, which is no tuple."""
    if tag in _SINGLE:
        return place
    if tag in _SHORT:
        return place + _SHORT[tag]
    if tag == _STR_L1:
        return place + 1 + data[place]
    if tag == _STR_L4:
        return place + 4 + int(_LENGTH.unpack_from(data, place)[0])
    if tag == _INT_L1 and data[place] <= MAX_DIGITS:
        return place + 1 + data[place]
    raise ValueError(f"a value of kind {tag}")
