"""Which release and which compiler this is, as peers are told."""

from __future__ import annotations

from importlib import metadata

from autotune.errors import ConfigError


def version() -> str:
    """The installed version, 'unknown' when run from a bare tree."""
    try:
        return metadata.version("autotune-compiler")
    except metadata.PackageNotFoundError:
        return "unknown"


def compiler() -> str:
    """Name and version of the compiler that builds candidates here."""
    try:
        from llvmlite import binding
    except ImportError:
        raise ConfigError(
            "llvmlite is not installed here; boards and clients need it: pip install llvmlite"
        ) from None
    return "llvm " + ".".join(map(str, binding.llvm_version_info))
