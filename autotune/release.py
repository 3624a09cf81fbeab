"""Version of this release. In: nothing. Out: a version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from autotune.errors import ConfigError

COMPILER, RUNTIME = "autotune-compiler", "autotune-runtime"
"""What is installed: all of it, or what runs compiled models."""
OWN = ("autotune", "cost_model", "rpc_server", "search_spaces")
"""Packages that only the first one has whole."""


def release() -> str:
    """The installed version, 'unknown' when run from a bare tree."""
    from importlib import metadata  # slow to load, and few ask

    for name in (COMPILER, RUNTIME):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


@contextlib.contextmanager
def needing_compiler() -> Iterator[None]:
    """What imports modules that the runtime lacks. Raises ConfigError where only that is
    installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in OWN:
            raise
        raise ConfigError(
            f"{RUNTIME} is installed, which runs models that are compiled; install {COMPILER} in "
            "its place for everything else"
        ) from None
