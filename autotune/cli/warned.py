"""Warnings on a terminal: one line each, on standard error, once."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator

from autotune.printable import one_line

_CLUSTER = ("asyncio", "distributed", "tornado")
"""Who logs what a cluster does; several set levels of their own."""


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Show what is warned of inside as `warning: ...`; what Python is told to make an error of
    stays one."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {one_line(str(message))}", file=sys.stderr)


@contextlib.contextmanager
def quiet_cluster(executor: object) -> Iterator[None]:
    """Show nothing that the libraries of a cluster log inside: where one fails, we say it in one
    line. Only theirs, and only inside: a damaged log still warns."""
    levels: dict[logging.Logger, int] = {}
    if executor not in (None, "local"):
        with contextlib.suppress(ImportError):  # using it says what to install
            import distributed  # noqa: F401  its loggers
        levels = {logger: logger.level for logger in _cluster_loggers()}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _cluster_loggers() -> list[logging.Logger]:
    """All that exist below the names."""
    known = logging.Logger.manager.loggerDict
    names = {*_CLUSTER, *(name for name in known if name.partition(".")[0] in _CLUSTER)}
    return [logging.getLogger(name) for name in sorted(names)]
