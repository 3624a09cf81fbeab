"""Walls between candidates and this board's secrets.

In: bounds, the report of what holds, the folder of certificates. Out: lines for the one who starts
the board, or a refusal to start it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.errors import ConfigError
from autotune.measure.sandbox import Report, readable
from autotune.measure.sandbox import Sandbox as Bounds
from autotune.measure.visible import inside
from rpc_server.security.tls import KEY

_ELSEWHERE = "/etc/autotune/certs"


def check_certs(folder: Path, bounds: Bounds) -> None:
    """Raises ConfigError where candidates may read what lies in the folder of certificates, or
    what its key is a link to."""
    shown = readable(bounds, "") or []
    for path in (folder, folder / KEY):
        place = inside(path, [p for p in shown if p])
        if place:
            raise ConfigError(
                f"--certs {folder} is inside {place}, which candidates may read; move it, for "
                f"instance to {_ELSEWHERE}"
            )


def file_walls(report: Report, user: int, certs: str) -> Sequence[str]:
    """Lines about a board whose candidates are on the machine's own files, none where they are
    not. Raises ConfigError where its secrets are theirs too."""
    if not report.get("view", "absent") or not report.get("files", "absent"):
        return ()
    if user == 0 and not report.get("privileges", "absent"):
        return (
            "files   kept from candidates by their modes alone: neither Landlock nor a mount "
            "namespace is to be had; what everybody may read, candidates may",
        )
    if user == 0:
        raise ConfigError(
            "candidates would be root and read everything: neither Landlock nor a mount namespace "
            f"is to be had, and {report.get('privileges', '')}; install Python where everybody "
            "can read it, or start the board as a user of its own"
        )
    if certs:
        raise ConfigError(
            f"candidates could read {Path(certs) / KEY}: neither Landlock nor a mount namespace "
            "is to be had; start the board as root, which gives its workers a user of their own"
        )
    return (
        "files   not kept from candidates: neither Landlock nor a mount namespace is to be had, "
        "and they are the same user as this board",
    )
