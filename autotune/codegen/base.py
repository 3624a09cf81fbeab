"""What a backend gives: object code of kernels and of a whole model's entry, and a way to load it.

Symbols in an object built for a kernel NAME (pointers are to element 0,0,... of the tensor):
    void NAME(ptr param0, ..., ptr workspace, i64 thread, i64 threads)     one thread's share of
        the kernel; where the target has several threads it contains barriers, and all `threads`
        of the team, numbered from 0, must call it
    void NAME_run(ptr args, i64 repeats)     args: array of pointers, params then workspace; opens
        a parallel region of target.threads and runs the kernel `repeats` times
A model's entry: void NAME(ptr bases), which runs every call in one parallel region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.program.ir import Program
from autotune.registry import Registry
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCode:
    """A relocatable object file."""

    symbol: str
    code: bytes
    workspace_bytes: int
    """Scratch memory one call needs (64-byte aligned), all threads together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCall:
    """One kernel call of a model's entry: (index into `bases`, byte offset) per param and last for
    the workspace."""

    symbol: str
    args: tuple[tuple[int, int], ...]


class Backend(Protocol):
    """Programs to machine code. Add one: a file in this folder and `BACKENDS.add`."""

    @property
    def name(self) -> str: ...

    def source(self, program: Program, target: Target, symbol: str) -> str:
        """The generated text (LLVM IR, C): what golden tests hold."""
        ...

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:
        """Raises BuildError."""
        ...

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes: ...


class Library(Protocol):
    """Loaded objects; `address` of a symbol is valid while the library is referenced."""

    def address(self, symbol: str) -> int: ...


BACKENDS: Registry[Backend] = Registry("backend")
