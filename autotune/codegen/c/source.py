"""Kernels as C, to become parts of one file. In: a kernel's definitions and its statements. Out:
bytes that stand where object code does, and back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from autotune.codegen.base import EntryCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CSource:
    """One kernel. `head`: definitions of types, macros and functions, each before its uses."""

    symbol: str
    params: int
    """How many pointers it gets before the workspace."""
    head: tuple[str, ...]
    body: tuple[str, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(code: bytes) -> CSource:
        data = json.loads(code)
        return CSource(
            symbol=data["symbol"],
            params=data["params"],
            head=tuple(data["head"]),
            body=tuple(data["body"]),
        )


def encoded_calls(calls: Sequence[EntryCall]) -> bytes:
    """A model's entry, as `CSource` is a kernel."""
    return json.dumps([[call.symbol, call.args] for call in calls]).encode()


def decoded_calls(code: bytes) -> tuple[EntryCall, ...]:
    """What `encoded_calls` was given."""
    return tuple(
        EntryCall(symbol=symbol, args=tuple((base, offset) for base, offset in args))
        for symbol, args in json.loads(code)
    )
