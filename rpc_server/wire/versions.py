"""Version of this compiler, as peers are told."""

from __future__ import annotations

from autotune.codegen.llvm.binding import binding, builds_here


def compiler() -> str:
    """Name and version of the compiler that builds candidates here, '' where there is none."""
    if not builds_here():
        return ""
    return "llvm " + ".".join(map(str, binding().llvm_version_info))
