"""LLVM IR to objects in a worker process. In: texts, and a target. Out: a request as a frame; in
the worker its reply; in the parent the objects, an empty one for an empty text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from autotune.codegen.llvm.backend import compile_text
from autotune.errors import BuildError
from autotune.measure.frames import Frame
from autotune.target import Target


def emit_request(texts: Sequence[str], target: Target) -> Frame:
    parts = [text.encode() for text in texts]
    header = {"command": "emit", "target": target.to_json(), "lengths": [*map(len, parts)]}
    return header, b"".join(parts)


def emit_reply(header: Mapping[str, Any], blob: bytes) -> Frame:
    """Raises BuildError where LLVM refuses a text."""
    target = Target.from_json(header["target"])
    texts = (part.decode() for part in _parts(header["lengths"], blob))
    codes = [compile_text(text, target) if text else b"" for text in texts]
    return {"lengths": [*map(len, codes)]}, b"".join(codes)


def emitted_codes(header: Mapping[str, Any], blob: bytes) -> list[bytes]:
    """What a reply tells. Raises BuildError where the worker could not."""
    if "lengths" not in header:
        raise BuildError(f"the compiler process: {header['error']}")
    return list(_parts(header["lengths"], blob))


def _parts(lengths: Sequence[int], blob: bytes) -> Iterator[bytes]:
    return (blob[begin:end] for begin, end in pairwise(accumulate(lengths, initial=0)))
