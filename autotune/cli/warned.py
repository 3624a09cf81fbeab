"""Warnings on a terminal: one line each, on standard error, once."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

from autotune.printable import one_line


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Show what is warned of inside as `warning: ...`; what Python is told to make an error of
    stays one."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {one_line(str(message))}", file=sys.stderr)
