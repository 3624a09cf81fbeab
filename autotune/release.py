"""Which release this is. In: nothing. Out: a version."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    """The installed version, 'unknown' when run from a bare tree."""
    try:
        return metadata.version("autotune-compiler")
    except metadata.PackageNotFoundError:
        return "unknown"
