"""Dispatch of statements to the methods of a writer. In: statements. Out: whatever the writer
makes.

Writers of every language take statements by it; what a statement becomes, their methods say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from autotune.errors import BuildError
from autotune.program.ir import Alloc, For, If, Prefetch, Stmt, Store


class StatementDispatch(ABC):
    """A method for each kind of statement that every language has; `other` for the rest."""

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, If):
            self.guard(stmt)
        elif isinstance(stmt, Alloc):
            self.alloc(stmt)
        elif isinstance(stmt, Prefetch):
            self.prefetch(stmt)
        else:
            self.other(stmt)

    @abstractmethod
    def loop(self, loop: For) -> None: ...

    @abstractmethod
    def store(self, stmt: Store) -> None: ...

    @abstractmethod
    def guard(self, stmt: If) -> None: ...

    @abstractmethod
    def alloc(self, stmt: Alloc) -> None: ...

    @abstractmethod
    def prefetch(self, stmt: Prefetch) -> None: ...

    def other(self, stmt: Stmt) -> None:
        """A statement that only some languages have."""
        raise BuildError(f"no {type(stmt).__name__} in this language; use a schedule without it")
