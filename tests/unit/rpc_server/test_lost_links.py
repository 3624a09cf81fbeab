"""Links that come back: what is lost is a LinkLostError, whatever happens at the same moment."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import DeviceError
from rpc_server.client import board_runner as client
from rpc_server.client.board_runner import RpcRunner
from rpc_server.security.tls import CERT, Credentials
from rpc_server.tracker import link as tracker_link
from rpc_server.tracker.link import TrackerLink
from rpc_server.wire.link import LinkLostError
from tests.unit.rpc_server.farm_certs import make_farm


@pytest.fixture
def port() -> Iterator[int]:
    """Of somebody who listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def replaced(tmp_path: Path) -> Credentials:
    """Certificates of which one file is being replaced."""
    folder = tmp_path / "alice"
    shutil.copytree(make_farm(tmp_path / "farm").folder / "alice", folder)
    credentials = Credentials(folder)
    (folder / CERT).unlink()
    return credentials


def test_certificates_that_are_being_replaced_are_a_lost_link(
    port: int, replaced: Credentials
) -> None:
    with pytest.raises(LinkLostError, match="are gone"):
        TrackerLink("127.0.0.1", port, replaced).call("beat", b"", 1.0)
    with pytest.raises(DeviceError, match=r"cannot reach .* are gone"):
        RpcRunner(f"rpc://127.0.0.1:{port}", credentials=replaced)


class Opened:
    """A connection, and whether it was dropped."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_a_link_that_is_closed_while_it_connects_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, link = Opened(), TrackerLink("127.0.0.1", 1)

    def connect(*_: object) -> Opened:
        link.close()
        return opened

    monkeypatch.setattr(tracker_link, "connect", connect)
    with pytest.raises(LinkLostError, match="closed"):
        link.call("beat", b"", 1.0)
    assert opened.dropped


def test_a_board_that_is_given_up_while_it_is_connected_to_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Opened()
    runner = RpcRunner.__new__(RpcRunner)

    def connect(*_: object) -> Opened:
        runner.give_up()
        return opened

    monkeypatch.setattr(client, "connect", connect)
    with pytest.raises(DeviceError, match="it was given up"):
        runner.__init__("rpc://127.0.0.1:1")  # type: ignore[misc]
    assert opened.dropped


def test_a_board_that_refuses_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Opened):
        def call(self, *_: object) -> bytes:
            return b"{}"

    opened = Refusing()
    monkeypatch.setattr(client, "connect", lambda *_: opened)
    with pytest.raises(DeviceError, match="protocol version"):
        RpcRunner("rpc://127.0.0.1:1")
    assert opened.dropped
