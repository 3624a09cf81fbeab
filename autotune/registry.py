"""Named parts of one kind: ops, rules, steps, backends, cost models, strategies.

A room's package imports the modules in its folder (`load_folder`); each registers itself then.
Packages outside the project register through the `autotune.plugins` entry point group.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Generic, TypeVar

from autotune.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """A name -> part mapping; registering a name twice is an error."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        if name in self._parts:
            raise ConfigError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._parts[name] = part
        return part

    def get(self, name: str) -> T:
        if name not in self._parts:
            known = ", ".join(sorted(self._parts))
            raise ConfigError(f"unknown {self.kind} {name!r}; known: {known}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def parts(self) -> tuple[T, ...]:
        return tuple(self._parts[n] for n in self)


def load_folder(package: str, path: list[str]) -> None:
    """Import every module of a package folder, in name order, so that each registers its part."""
    for info in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        if not info.name.startswith("_"):
            importlib.import_module(f"{package}.{info.name}")
