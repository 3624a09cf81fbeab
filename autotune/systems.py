"""Operating systems of targets, as far as code differs by them. In: an LLVM triple. Out: facts."""

from __future__ import annotations

import re

_APPLE = re.compile(r"(?:arm64|aarch64)-apple-(macos|ios)")


def apple_system(triple: str) -> str:
    """macos or ios, whose objects are Mach-O; empty for others."""
    found = _APPLE.match(triple)
    return found[1] if found else ""


def is_android(triple: str) -> bool:
    """Whether the C library is Android's."""
    return "-android" in triple


def code_triple(triple: str) -> str:
    """LLVM's name of what code is generated for: ELF for Apple's systems too, which is what is
    linked here; without a C library, whose functions LLVM would call."""
    return "aarch64-unknown-linux" if apple_system(triple) else triple


def has_teams(triple: str) -> bool:
    """Whether there is code for several threads: by Linux's calls, and pthreads that keep to
    cores, which Android's do not."""
    return "linux" in triple.split("-") and not is_android(triple)
