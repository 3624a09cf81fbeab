"""Named parts of one kind: ops, rules, steps, backends, cost models, strategies, commands.

A room's package imports the modules in its folder (`load_folder`); each registers itself then.
Packages outside the project register through the `autotune.plugins` entry point group
(autotune/plugins.py).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Generic, TypeVar

from autotune.errors import ConfigError
from autotune.plugins import PLUGINS

T = TypeVar("T")


class Registry(Generic[T]):
    """A name -> part mapping; registering a name twice is an error.

    `room`: the module whose import registers the project's own parts, where importing the
    registry does not; it is imported, and then plugins, where a part is missing or all parts are
    asked for."""

    def __init__(self, kind: str, room: str = "") -> None:
        self.kind = kind
        self._room = room
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        """Register a part; returns it. Raises ConfigError where the name is taken."""
        if plugin := PLUGINS.adding():
            self._complete()
        if name in self._parts:
            raise ConfigError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._parts[name] = part
        if plugin:
            PLUGINS.undone_by(lambda: self._parts.pop(name))
        return part

    def get(self, name: str) -> T:
        """Raises ConfigError, naming those there are."""
        if name not in self:
            known = ", ".join(sorted(self._parts))
            raise ConfigError(f"unknown {self.kind} {name!r}; known: {known}")
        return self._parts[name]

    def in_order(self) -> dict[str, T]:
        """Every part by its name, in the order in which they were registered."""
        self._complete()
        PLUGINS.load()
        return dict(self._parts)

    def __contains__(self, name: object) -> bool:
        if name not in self._parts:
            self._complete()
        if name not in self._parts:
            PLUGINS.load()
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.in_order()))

    def parts(self) -> tuple[T, ...]:
        """Every part, by name."""
        return tuple(self._parts[n] for n in self)

    def _complete(self) -> None:
        """The project's own parts come first: it is the plugin whose name is refused."""
        if self._room:
            importlib.import_module(self._room)


def load_folder(package: str, path: list[str]) -> None:
    """Import every module of a package folder and of those inside it, in name order, so that each
    registers its part."""
    for info in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        if info.ispkg:
            load_folder(module.__name__, list(module.__path__))
