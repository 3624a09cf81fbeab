"""Refusals that are final are said at once: by trackers and boards, to every kind of client."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import DeviceError
from rpc_server.__main__ import main
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.farm_runner import FarmRunner
from rpc_server.client.leases import ask_key
from rpc_server.client.options import Deadlines, FarmOptions
from rpc_server.security.tls import Credentials
from rpc_server.tracker.link import TrackerLink
from rpc_server.tracker.service import Tracker, tracker_listener
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import FarmError, FarmRules, Registered
from rpc_server.wire import farm as farm_wire
from rpc_server.wire.refusals import LinkRefusedError, speaks_tls
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes
from tests.unit.rpc_server.farm_certs import FarmCerts, make_farm

SOON_S = 30.0
"""Far below the deadlines, which are minutes, and far above what a busy machine takes."""
PATIENT = Deadlines(queue_s=600.0, session_s=600.0)


@pytest.fixture
def farm(tmp_path: Path) -> FarmCerts:
    return make_farm(tmp_path / "farm")


@contextlib.contextmanager
def tracker(credentials: Credentials | None) -> Iterator[int]:
    """The port of a tracker that has a board, which never answers."""
    with contextlib.closing(StateStore(None)) as store:
        subject = Tracker(FarmRules(), store, version="1")
        listener = tracker_listener(subject, "127.0.0.1", 0, credentials=credentials)
        threads = [threading.Thread(target=f) for f in (listener.serve, subject.run)]
        for thread in threads:
            thread.start()
        try:
            yield listener.port
        finally:
            subject.stop()
            listener.close()
            for thread in threads:
                thread.join(timeout=PATIENCE_S)


def register(link: TrackerLink) -> None:
    info = {"profile": fakes.FakeExecutor().profile(fakes.request(0).target).to_json()}
    event = Registered(board="board", key="k", address="127.0.0.1:1", secret="s", info=info)
    link.call("register", farm_wire.encode_register(event), PATIENCE_S)


@pytest.mark.parametrize(
    ("name", "reason"), [("gone", "this certificate was revoked"), ("old", "has expired")]
)
def test_a_tracker_says_why_a_certificate_is_no_good(
    farm: FarmCerts, name: str, reason: str
) -> None:
    with (
        tracker(farm.of("tracker")) as port,
        contextlib.closing(TrackerLink("127.0.0.1", port, farm.of(name))) as link,
    ):
        for _ in range(5):  # and never a reset connection instead
            with pytest.raises(LinkRefusedError, match=reason):
                link.call("status", b"x" * 100_000, PATIENCE_S)


def test_a_client_without_certificates_is_told_that_it_needs_one(farm: FarmCerts) -> None:
    with tracker(farm.of("tracker")) as port:
        with (
            contextlib.closing(TrackerLink("127.0.0.1", port)) as link,
            pytest.raises(FarmError, match=r"serves holders of certificates only.*--certs"),
        ):
            ask_key(link, "k")
        with pytest.raises(DeviceError, match=r"serves holders of certificates only"):
            RpcRunner(f"rpc://127.0.0.1:{port}")


def test_status_without_certificates_is_one_line(
    farm: FarmCerts, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracker(farm.of("tracker")) as port, pytest.raises(SystemExit) as caught:
        main(["status", "--tracker", f"127.0.0.1:{port}"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "certificates only" in said
    assert said.count("\n") == 1


def test_nobody_at_an_address_speaks_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert not speaks_tls("127.0.0.1", port, 0.05)
    assert not speaks_tls("127.0.0.1", port)


def test_a_server_of_another_role_is_refused_at_once(farm: FarmCerts) -> None:
    with (
        tracker(farm.of("board")) as port,
        contextlib.closing(TrackerLink("127.0.0.1", port, farm.of("alice"))) as link,
        pytest.raises(LinkRefusedError, match="expected a tracker here"),
    ):
        link.call("status", b"", PATIENCE_S)


def test_a_client_that_is_revoked_while_it_waits_is_told_at_once(farm: FarmCerts) -> None:
    """Its tracker drops it within a second; it would go on calling for session_s otherwise."""
    with tracker(farm.of("tracker")) as port:
        board = TrackerLink("127.0.0.1", port, farm.of("board"))
        register(board)
        runner = FarmRunner(
            f"tracker://127.0.0.1:{port}/k",
            farm=FarmOptions(deadlines=PATIENT),
            credentials=farm.of("alice"),
        )
        farm.revoke("alice")
        start_s = time.monotonic()
        with pytest.raises(FarmError, match=r"does not serve this client.*was revoked"):
            runner.measure((fakes.request(fakes.GOOD),))
        assert time.monotonic() - start_s < SOON_S
        runner.close()
        board.close()
