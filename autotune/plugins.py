"""Plugins: packages installed beside this one that add parts of any kind. In: the installed
packages' `autotune.plugins` entry points. Out: their modules imported, each of which registers
its parts as the project's own modules do.

    [project.entry-points."autotune.plugins"]
    mine = "my_package.parts"

They are loaded once in a process, where a registry is first asked for a part that is not one of
the project's own, or for all its parts (reading entry points takes 8 ms among 70 packages, and
importing what reads them 50, where nothing else has). A plugin is code of the machine it is
installed on: a board loads those that are installed there, and nothing that comes over the wire
can name one.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotune.defects import described

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "autotune.plugins"
OWN = frozenset(("autotune", "cost_model", "rpc_server", "search_spaces"))
"""The project's packages."""


class PluginWarning(UserWarning):
    """A plugin could not be loaded, and nothing of it was kept; the message has its name."""


class Plugins:
    """The plugins of a process: loaded once, each of them whole or not at all."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._begun = False
        self._done = False
        self._loading = False
        self._undo: list[Callable[[], object]] = []

    def adding(self) -> bool:
        """Whether what registers now is a plugin, and no module of the project that a plugin was
        the first to import."""
        return self._loading and _importing().partition(".")[0] not in OWN

    def undone_by(self, undo: Callable[[], object]) -> None:
        """What takes back a part that the plugin being loaded has added, should it fail later."""
        self._undo.append(undo)

    def load(self) -> None:
        """Load every plugin, once. Warns of each that fails, whatever it raised: other people's
        code ends no command. A plugin that asks a registry itself finds what is there so far;
        other threads wait until everything is."""
        if self._done:
            return
        with self._lock:
            if self._begun:
                return
            self._begun = True
            failures = [failure for found in _installed() if (failure := self._load(found))]
            self._done = True
        for failure in failures:
            warnings.warn(failure, PluginWarning, stacklevel=2)

    def _load(self, found: EntryPoint) -> str:
        """Import one plugin; why it is left out, or nothing."""
        self._loading, self._undo = True, []
        try:
            found.load()
        except (Exception, SystemExit) as error:
            for undo in reversed(self._undo):
                undo()
            return f"plugin {found.name} ({found.value}) is left out: {described(error)}"
        finally:
            self._loading = False
        return ""


def _importing() -> str:
    """Name of the module that is being imported: of several, the last one begun."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _installed() -> list[EntryPoint]:
    """The entry points of installed packages, by name."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))


PLUGINS = Plugins()
"""The plugins of this process, as the registries are its own."""
