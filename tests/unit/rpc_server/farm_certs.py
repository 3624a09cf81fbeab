"""Certificates for tests. In: a folder. Out: credentials of a tracker, a board and clients."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from rpc_server.security import certs
from rpc_server.security.auth import Role
from rpc_server.security.tls import Credentials

NOW = datetime.datetime.now(datetime.UTC)
LONG_AGO = NOW - datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class FarmCerts:
    """An authority's folder and who has what from it."""

    folder: Path

    def of(self, name: str) -> Credentials:
        return Credentials(self.folder / name)

    def revoke(self, name: str) -> None:
        certs.revoke(self.folder, name, NOW)


def make_farm(folder: Path) -> FarmCerts:
    """tracker, board, alice and builder (clients; builder may send objects), and two that are
    refused: gone (revoked) and old (expired)."""
    certs.init(folder, LONG_AGO)
    certs.issue(folder, "tracker", Role.TRACKER, NOW)
    certs.issue(folder, "board", Role.BOARD, NOW)
    certs.issue(folder, "alice", Role.CLIENT, NOW)
    certs.issue(folder, "builder", Role.CLIENT, NOW, objects=True)
    certs.issue(folder, "gone", Role.CLIENT, NOW)
    certs.issue(folder, "old", Role.CLIENT, LONG_AGO, days=10)
    certs.revoke(folder, "gone", NOW)
    return FarmCerts(folder)
