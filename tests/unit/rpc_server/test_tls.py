"""Links with certificates: who gets in, who does not, and for how long."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.errors import ConfigError
from rpc_server.security import certs
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import AuthError, Peer, Role, peer_of
from rpc_server.security.tls import Credentials
from rpc_server.wire.link import LINK_ERRORS, BytesConnection, connect
from rpc_server.wire.listener import PAUSE_S, LinkLimits, Listener, Methods, ServerAccess
from tests.patience import PATIENCE_S
from tests.unit.rpc_server.farm_certs import NOW, FarmCerts, make_farm

LIMITS = LinkLimits(links=6, links_per_peer=3, opening=4, opening_s=5 * PATIENCE_S)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> FarmCerts:
    return make_farm(tmp_path_factory.mktemp("certs") / "farm")


class Guests:
    """What the server under test saw."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.gone = threading.Semaphore(0)

    def enter(self, peer: Peer) -> tuple[Methods, Callable[[], None]]:
        self.peers.append(peer)
        return {"reverse": lambda data: data[::-1]}, self.gone.release


@dataclasses.dataclass
class Site:
    """A listener that is open while the test runs."""

    listener: Listener
    guests: Guests
    audit: Path

    def visit(self, credentials: Credentials | None, **options: object) -> BytesConnection:
        return connect("127.0.0.1", self.listener.port, PATIENCE_S, credentials, **options)  # type: ignore[arg-type]

    def known(self, credentials: Credentials) -> BytesConnection:
        """A link that counts among its peer's from here on: the server learns its name a moment
        after the client has shaken hands, of two that come together in any order."""
        links, until = self._named() + 1, time.monotonic() + PATIENCE_S
        link = self.visit(credentials)
        while self._named() < links and time.monotonic() < until:
            threading.Event().wait(0.005)
        return link

    def _named(self) -> int:
        with self.listener._lock:
            return sum(visit.peer is not None for visit in self.listener._visits)

    def refusals(self) -> list[str]:
        """Reasons in the audit log; the client knows of its refusal a moment before."""
        until = time.monotonic() + PATIENCE_S
        while not (lines := self.audit.read_text().splitlines()) and time.monotonic() < until:
            threading.Event().wait(0.005)
        return [json.loads(line)["result"] for line in lines]


@contextlib.contextmanager
def site(
    tmp_path: Path, credentials: Credentials | None, limits: LinkLimits = LIMITS
) -> Iterator[Site]:
    guests, path = Guests(), tmp_path / "audit.log"
    access = ServerAccess(
        enter=guests.enter,
        roles=frozenset({Role.CLIENT}),
        credentials=credentials,
        limits=limits,
        audit=AuditLog(path),
    )
    listener = Listener("127.0.0.1", 0, access)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    try:
        yield Site(listener, guests, path)
    finally:
        listener.close()
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive()


def refused(site: Site, credentials: Credentials | None) -> bool:
    """Whether a call of `reverse` by this visitor fails."""
    connection = None
    try:
        connection = site.visit(credentials)
        connection.call("reverse", b"abc", PATIENCE_S)
    except LINK_ERRORS:
        return True
    finally:
        if connection is not None:
            with contextlib.suppress(*LINK_ERRORS):
                connection.drop()
    return False


def test_a_client_gets_in_and_is_known_by_name(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        link = here.visit(farm.of("alice"))
        large = bytes(range(256)) * 4000
        assert link.call("reverse", large, PATIENCE_S) == large[::-1]
        (peer,) = here.guests.peers
        assert (peer.name, peer.role, peer.objects) == ("alice", Role.CLIENT, False)
        link.drop()


def test_the_right_to_send_objects_is_in_the_certificate(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        link = here.visit(farm.of("builder"))
        assert link.call("reverse", b"ab", PATIENCE_S) == b"ba"
        assert here.guests.peers[0].objects
        link.drop()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gone", "revoked"), ("old", "expired"), ("tracker", "expected a client here")],
)
def test_others_do_not_get_in(tmp_path: Path, farm: FarmCerts, name: str, reason: str) -> None:
    with site(tmp_path, farm.of("board")) as here:
        assert refused(here, farm.of(name))
        assert here.guests.peers == []
        assert reason in here.refusals()[0]


def test_a_certificate_of_another_authority_does_not_get_in(
    tmp_path: Path, farm: FarmCerts
) -> None:
    other = make_farm(tmp_path / "other")
    with site(tmp_path, farm.of("board")) as here:
        with pytest.raises(ssl.SSLCertVerificationError):
            here.visit(other.of("alice"))
        own = dataclasses.replace(other)  # who trusts our server, and shows a foreign certificate
        (own.folder / "alice" / "ca.pem").write_bytes((farm.folder / "ca.pem").read_bytes())
        (own.folder / "alice" / "crl.pem").write_bytes((farm.folder / "crl.pem").read_bytes())
        assert refused(here, own.of("alice"))
        assert here.guests.peers == []


def test_no_certificate_does_not_get_in(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", here.listener.port))
        with contextlib.suppress(OSError), bare.wrap_socket(plain) as sock:
            sock.settimeout(PATIENCE_S)
            assert sock.recv(1) == b""
        assert refused(here, None)
        assert here.guests.peers == []


def test_older_tls_does_not_get_in(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        plain = socket.create_connection(("127.0.0.1", here.listener.port))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            old.wrap_socket(plain)
        plain.close()


def test_a_client_refuses_a_server_of_the_wrong_role(tmp_path: Path, farm: FarmCerts) -> None:
    with (
        site(tmp_path, farm.of("builder")) as here,
        pytest.raises(AuthError, match="expected a board here, got client builder"),
    ):
        here.visit(farm.of("alice"))


def test_revocation_ends_links_that_are_open(tmp_path: Path) -> None:
    farm = make_farm(tmp_path / "farm")
    with site(tmp_path, farm.of("board")) as here:
        link = here.visit(farm.of("alice"))
        assert link.call("reverse", b"ab", PATIENCE_S) == b"ba"
        farm.revoke("alice")
        assert here.guests.gone.acquire(timeout=PATIENCE_S)
        link.drop()
        assert refused(here, farm.of("alice"))
        assert not refused(here, farm.of("builder"))


def test_a_certificate_that_ends_ends_its_link(tmp_path: Path) -> None:
    farm = make_farm(tmp_path / "farm")
    certs.issue(farm.folder, "short", Role.CLIENT, NOW)
    guests = Guests()
    later = time.time() + 400 * 86400
    access = ServerAccess(
        enter=guests.enter,
        roles=frozenset({Role.CLIENT}),
        credentials=farm.of("board"),
        clock=lambda: later,
    )
    listener = Listener("127.0.0.1", 0, access)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    link = connect("127.0.0.1", listener.port, PATIENCE_S, farm.of("short"))
    assert guests.gone.acquire(timeout=PATIENCE_S)
    link.drop()
    listener.close()
    thread.join(timeout=PATIENCE_S)


def test_silent_connections_keep_nobody_out(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        silent = [socket.create_connection(("127.0.0.1", here.listener.port)) for _ in range(40)]
        assert not refused(here, farm.of("alice"))
        for sock in silent:
            sock.close()


def test_a_door_without_files_left_waits_for_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, enough = [], threading.Event()

    def accept(_: socket.socket) -> tuple[socket.socket, object]:
        tries.append(time.monotonic())
        if len(tries) == 3:
            enough.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    with site(tmp_path, None):
        assert enough.wait(PATIENCE_S)
    assert tries[2] - tries[0] >= 2 * PAUSE_S


def test_a_silent_connection_is_closed_after_a_while(tmp_path: Path) -> None:
    with (
        site(tmp_path, None, dataclasses.replace(LIMITS, opening_s=0.4)) as here,
        socket.create_connection(("127.0.0.1", here.listener.port), timeout=PATIENCE_S) as sock,
    ):
        data = sock.recv(100)
        while data:  # rpyc says good-bye
            data = sock.recv(100)
        assert here.guests.gone.acquire(timeout=PATIENCE_S)


def test_one_certificate_has_a_limited_number_of_links(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        links = [here.known(farm.of("alice")) for _ in range(4)]
        for link in links[:3]:
            assert link.call("reverse", b"ab", PATIENCE_S) == b"ba"
        with pytest.raises(LINK_ERRORS, match="too many links: 3 of 6, 3 of 3 yours"):
            links[3].call("reverse", b"ab", PATIENCE_S)
        assert not refused(here, farm.of("builder"))
        for link in links:
            link.drop()


def test_without_certificates_only_loopback_is_listened_on() -> None:
    access = ServerAccess(enter=Guests().enter, roles=frozenset({Role.CLIENT}))
    with pytest.raises(ConfigError, match="certs init"):
        Listener("0.0.0.0", 0, access)


@pytest.mark.parametrize(
    "subject",
    [
        (),
        ((("commonName", "x"),),),
        ((("commonName", "x"),), (("organizationalUnitName", "king"),)),
    ],
)
def test_a_certificate_without_name_and_role_is_nobody(subject: object) -> None:
    with pytest.raises(AuthError, match="expected a certificate"):
        peer_of({"subject": subject, "notAfter": "Nov 21 04:27:24 2027 GMT"})


def test_a_folder_whose_name_no_file_may_have_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"has no ca\.pem"):
        Credentials(Path("x" * 5000))
