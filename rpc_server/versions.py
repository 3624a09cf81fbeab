"""Which release and which compiler this is, as peers are told."""

from __future__ import annotations

from importlib import metadata

from autotune.codegen.llvm_binding import binding, builds_here


def version() -> str:
    """The installed version, 'unknown' when run from a bare tree."""
    try:
        return metadata.version("autotune-compiler")
    except metadata.PackageNotFoundError:
        return "unknown"


def compiler() -> str:
    """Name and version of the compiler that builds candidates here, '' where there is none."""
    if not builds_here():
        return ""
    return "llvm " + ".".join(map(str, binding().llvm_version_info))
