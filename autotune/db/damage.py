"""Damaged rows of a log. In: what reading it ran into. Out: one line for its user.

Standard library only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.db import seals

LOGGER = logging.getLogger("autotune.log")
"""Warnings about logs: one line each, when a log is closed."""
_SHOWN = 8
"""Rows that a line names."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Damaged:
    """A row, or a part of the file, that cannot be used."""

    table: str
    key: str
    """Its id, or the key of a task or target; empty for the file itself."""
    why: str

    def __str__(self) -> str:
        return f"{self.table} {self.key}: {self.why}" if self.key else self.why


class Damage:
    """Damaged rows and pages that one reader of a log found, each once."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._found: dict[tuple[str, str], Damaged] = {}
        self._told = 0
        self._notes: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, table: str, key: Any, why: str) -> None:
        """A row that is skipped."""
        name = shown(key)
        self._found.setdefault((table, name), Damaged(table=table, key=name, why=why))

    def is_whole(self, table: str, key: Any, row: Any) -> bool:
        """Whether a row's seal fits; a row whose does not is added."""
        whole = seals.is_whole(table, row)
        if not whole:
            self.add(table, key, "its checksum does not fit")
        return whole

    def note(self, text: str) -> None:
        """Something else about the log that its user should know."""
        if text and text not in self._notes:
            self._notes.append(text)

    def rows(self) -> Sequence[Damaged]:
        return sorted(self._found.values())

    def take_notes(self) -> Sequence[str]:
        """Damage that was not told yet."""
        notes, self._notes = self._notes, []
        return notes

    def tell(self) -> None:
        """Warn of what was found since the last time, in one line."""
        if len(self._found) == self._told and not self._notes:
            return
        parts, self._notes = self._notes, []
        if len(self._found) > self._told:
            parts.append(self._skipped())
        self._told = len(self._found)
        LOGGER.warning("tuning log %s: %s", self._log, "; ".join(parts))

    def _skipped(self) -> str:
        names: dict[str, list[str]] = {}
        for row in self.rows()[:_SHOWN]:
            names.setdefault(row.table, []).append(row.key)
        listed = "; ".join(f"{table} {', '.join(keys)}" for table, keys in names.items())
        more = len(self._found) - _SHOWN
        count = len(self._found)
        return (
            f"{count} damaged row{'s' * (count != 1)} skipped ({listed}"
            f"{f' and {more} more' if more > 0 else ''}); `autotune log check` lists them, "
            "`autotune log repair` keeps the rest"
        )


def shown(key: Any) -> str:
    """A key as it may stand in a line for a terminal."""
    text = key if isinstance(key, str) else repr(key)
    return "".join(c if c.isprintable() else "?" for c in text[:80])
