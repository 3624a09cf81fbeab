"""A model on its way out: its interface, its target, and how what belongs to it is called."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.llvm.futex import long_type
from autotune.export.interface import Interface
from autotune.target import Target

WORDS = (
    "about", "inputs", "outputs", "input", "output", "memory_bytes", "threads", "limit_threads",
    "create", "create_in", "run", "destroy", "error",
)  # fmt: skip
"""The functions, without the prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A model to write functions and files for."""

    face: Interface
    target: Target
    about: str
    """What the library says of itself: one line of JSON."""
    seal: bytes | None
    """None: the weights are in the library; else the last bytes of the file that they are in."""

    @property
    def size(self) -> str:
        """LLVM's type for C's size_t and long."""
        return long_type(self.target)

    @property
    def on_team(self) -> bool:
        """Whether runs use several threads."""
        return self.target.threads > 1


def weights_symbol(prefix: str) -> str:
    """The name by which the functions know weights that are in the library."""
    return f"{prefix}_weights"


def public_names(prefix: str) -> tuple[str, ...]:
    """The functions that can be called from outside."""
    return tuple(f"{prefix}_{word}" for word in WORDS)
