"""Numbers of seven bits a byte, as WebAssembly writes them (LEB128)."""

from __future__ import annotations

from autotune.errors import BuildError

PADDED_BYTES = 5
"""Bytes of a number that is filled in later: as many as 32 bits ever take."""


class LebReader:
    """Bytes read one after the other. Raises BuildError past their end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.at + count
        if end > len(self.data):
            raise BuildError("a WebAssembly object ends too early")
        self.at, out = end, self.data[self.at : end]
        return out

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        """Without a sign."""
        return self._bits()[0]

    def signed(self) -> int:
        value, bits, last = self._bits()
        return value - (1 << bits) if last & 0x40 else value

    def block(self) -> bytes:
        """Bytes whose count goes before them."""
        return self.take(self.number())

    def text(self) -> str:
        return self.block().decode()

    def _bits(self) -> tuple[int, int, int]:
        value = bits = 0
        while True:
            last = self.byte()
            value |= (last & 0x7F) << bits
            bits += 7
            if not last & 0x80:
                return value, bits, last


def number(value: int) -> bytes:
    """As few bytes as it takes."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def padded(value: int) -> bytes:
    """Five bytes, of a number without a sign, or one that a sign cannot change."""
    bits = [value >> 7 * n & 0x7F for n in range(PADDED_BYTES)]
    return bytes([*(part | 0x80 for part in bits[:-1]), bits[-1]])


def padded_signed(value: int) -> bytes:
    """Five bytes of a number of 32 bits; large addresses are negative ones."""
    wrapped = value - (1 << 32) if value >= 1 << 31 else value
    return padded(wrapped & (1 << 35) - 1)


def block(data: bytes) -> bytes:
    return number(len(data)) + data


def text(value: str) -> bytes:
    return block(value.encode())


def vector(items: list[bytes]) -> bytes:
    """Items, their count before them."""
    return number(len(items)) + b"".join(items)
