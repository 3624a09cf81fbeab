"""A command's standard streams. In: whatever the caller left open. Out: streams to print to."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def open_closed() -> None:
    """Open what the caller closed (`>&-`): a log or a socket would get its number otherwise, and
    what is printed would land there."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files need not be text: they go out as the bytes they came as.
        sys.stdout.reconfigure(errors="surrogateescape")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")


def readable(name: str) -> str:
    """A file's name as text that can be stored: what of it is none is marked."""
    return os.fsencode(name).decode("utf-8", "replace")


def discard(stream: TextIO) -> None:
    """Keep the interpreter from flushing a stream again that takes nothing any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def refusal(error: OSError) -> str:
    """An error of the system that nobody expected where it happened, in one line."""
    return f"the system refuses {error.filename or 'the output'}: {error.strerror or error}"
