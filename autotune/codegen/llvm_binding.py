"""llvmlite where it is installed. A board that only loads what others built does without."""

from __future__ import annotations

import functools
from typing import Any

from autotune.errors import BuildError


def binding() -> Any:
    """llvmlite's binding of LLVM. Raises BuildError where it is not installed."""
    try:
        import llvmlite.binding
    except ImportError:
        raise BuildError(
            "llvmlite is not installed here, so nothing can be built: pip install llvmlite, or "
            "build on another machine with --build host"
        ) from None
    return llvmlite.binding


@functools.cache
def builds_here() -> bool:
    """Whether llvmlite is installed."""
    try:
        binding()
    except BuildError:
        return False
    return True
