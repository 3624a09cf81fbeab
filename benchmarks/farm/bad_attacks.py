"""What must not get in: every attack is one connection to a board or a tracker with certificates.

In: a Site. Out: what came back. Attacks are by name in ATTACKS; see benchmarks/farm/bad_peers.py.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rpyc.core import brine, consts
from rpyc.core.channel import Channel

from autotune.errors import AutotuneError
from rpc_server.security.auth import Role
from rpc_server.security.freshness import seal
from rpc_server.security.tls import Credentials
from rpc_server.tracker.types import Asked, Registered, Released
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.link import LINK_ERRORS, connect
from tests.properties.wire_messages import KINDS, mutated
from tests.unit.measure import fakes
from tests.unit.rpc_server.farm_certs import FarmCerts

TIMEOUT_S = 3.0
HEADER = Channel.FRAME_HEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is attacked. `method` takes `message`, a good one but for who sends it; `asked` is what
    an honest client calls, and the answer's kind; `got`: audited results that nobody may have
    brought about."""

    name: str
    role: Role
    method: str
    message: Callable[[], bytes]
    decode: Callable[[bytes], object]
    fields: tuple[str, ...]
    asked: tuple[str, str]
    got: tuple[str, ...]


BOARD = Service(
    name="board",
    role=Role.BOARD,
    method="submit",
    message=lambda: wire.encode_submit([fakes.request(fakes.GOOD)]),
    decode=wire.decode_submit,
    fields=("tasks", "targets", "requests"),
    asked=("hello", "welcome"),
    got=("queued",),
)
TRACKER = Service(
    name="tracker",
    role=Role.TRACKER,
    method="sync",
    message=lambda: farm_wire.encode_sync(
        farm_wire.Sync(session="s", asks=(Asked(client="", request="r", key="k"),))
    ),
    decode=lambda data: farm_wire.decode_sync(data, "alice"),
    fields=("asks", "withdrawn", "releases", "renew"),
    asked=("status", "farm"),
    got=("Granted", "BoardChanged", "done"),
)


@dataclass(slots=True, kw_only=True)
class Site:
    """A service under attack."""

    service: Service
    port: int
    farm: FarmCerts
    rng: random.Random
    trusted: dict[str, Credentials] = field(default_factory=dict)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def credentials(self, name: str) -> Credentials:
        if name not in self.trusted:
            self.trusted[name] = self.farm.of(name)
        return self.trusted[name]

    def secured(self, name: str) -> ssl.SSLSocket:
        context = self.credentials(name).context(server=False)
        return context.wrap_socket(self.plain())

    def junk(self, most: int = 400) -> bytes:
        return self.rng.randbytes(self.rng.randrange(1, most))


def frame(data: bytes, compressed: int = 0) -> bytes:
    return bytes(HEADER.pack(len(data), compressed)) + data + b"\n"


def request(number: int, handler: int, *arguments: object) -> bytes:
    """One rpyc request as bytes."""
    boxed = tuple((consts.LABEL_VALUE, a) for a in arguments)
    body = brine.I1.pack(consts.MSG_REQUEST) + brine.dump(
        (number, (handler, (consts.LABEL_TUPLE, boxed)))
    )
    return frame(body)


def good(site: Site, version: int = wire.PROTOCOL) -> bytes:
    """A message that is as it should be, if its version is."""
    message = json.loads(site.service.message())
    message["v"] = version
    return json.dumps(message).encode()


def send(sock: socket.socket, data: bytes) -> bytes:
    """What comes back, until the board closes or says something."""
    with contextlib.suppress(OSError), sock:
        sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return sock.recv(4096)
    return b""


def random_bytes(site: Site) -> bytes:
    return send(site.plain(), site.junk())


def random_inside_tls(site: Site) -> bytes:
    return send(site.secured("alice"), site.junk())


def truncated_frame(site: Site) -> bytes:
    return send(site.secured("alice"), HEADER.pack(1000, 0) + site.junk(200))


def oversized_frame(site: Site) -> bytes:
    return send(site.secured("alice"), HEADER.pack(0xFFFFFFFF, 0) + site.junk())


BOMB = zlib.compress(bytes(256 << 20))


def decompression_bomb(site: Site) -> bytes:
    return send(site.secured("alice"), frame(BOMB, 1))


def packed_hello(site: Site) -> bytes:
    """31 MiB of an array of numbers, of which zlib makes 31 KB: with a valid certificate, before
    there is a ticket."""
    return send(site.secured("alice"), PACKED[site.service.asked[0]])


def _packed(method: str) -> bytes:
    message = b'{"v":3,"kind":"%s","x":[' % method.encode() + b"0," * (31 << 19) + b"0]}"
    whole = request(1, consts.HANDLE_CALL, method, message)[HEADER.size : -1]
    return frame(zlib.compress(whole, 9), 1)


PACKED = {service.asked[0]: _packed(service.asked[0]) for service in (BOARD, TRACKER)}


def deep_message(site: Site) -> bytes:
    """As many brackets, values or digits as a small message has room for."""
    method = site.service.asked[0]
    inside = site.rng.choice((b"[" * 60_000, b"[" * 30_000 + b"]" * 30_000, b"0," * 30_000 + b"0",
                              b"9" * 60_000, b'"' + b'\\"' * 30_000))  # fmt: skip
    message = b'{"v":3,"kind":"%s","x":[' % method.encode() + inside + b"]}"
    return _call(site, "alice", method, message)


def many_parts(site: Site) -> bytes:
    """A packet of as many values as have room in it."""
    parts = brine.dump((1, (consts.HANDLE_CALL, (consts.LABEL_TUPLE, (None,) * 60_000))))
    return send(site.secured("alice"), frame(brine.I1.pack(consts.MSG_REQUEST) + parts))


def damaged_json(site: Site) -> bytes:
    """A good message with something else in place of a value: 10^400, half a surrogate pair."""
    kind = KINDS[site.service.method]
    while True:
        data = mutated(kind, site.rng)
        try:
            site.service.decode(data)
        except AutotuneError:
            return _call(site, "alice", site.service.method, data)


def damaged_call(site: Site) -> bytes:
    message = good(site)
    whole = request(1, consts.HANDLE_CALL, site.service.method, message)
    start = whole.index(message)
    while True:
        data = bytearray(whole)
        for _ in range(site.rng.randrange(1, 30)):
            data[site.rng.randrange(HEADER.size, len(data))] = site.rng.randrange(256)
        try:
            site.service.decode(bytes(data[start : start + len(message)]))
        except AutotuneError:  # some damage only makes another valid message
            return send(site.secured("alice"), bytes(data))


def _call(site: Site, name: str, method: str, payload: bytes) -> bytes:
    try:
        link = connect(
            "127.0.0.1",
            site.port,
            TIMEOUT_S,
            site.credentials(name),
            frozenset({site.service.role}),
        )
    except (*LINK_ERRORS,):
        return b""
    with contextlib.suppress(*LINK_ERRORS):
        reply = link.call(method, payload, TIMEOUT_S)
        link.drop()
        return reply
    with contextlib.suppress(*LINK_ERRORS):
        link.drop()
    return b""


def wrong_version(site: Site) -> bytes:
    return _call(
        site, "alice", site.service.method, good(site, site.rng.choice([0, wire.PROTOCOL + 1, 99]))
    )


def wrong_schema(site: Site) -> bytes:
    message = json.loads(good(site))
    key = site.rng.choice(site.service.fields)
    message[key] = site.rng.choice([None, {}, 7, "x", [[]], [{"task": -1}]])
    return _call(site, "alice", site.service.method, json.dumps(message).encode())


def other_handler(site: Site) -> bytes:
    """What an ordinary rpyc client may ask for, and we do not."""
    handler = site.rng.choice([consts.HANDLE_GETROOT, consts.HANDLE_PICKLE, consts.HANDLE_GETATTR])
    return send(site.secured("alice"), request(1, handler, site.service.method, "__class__"))


def _sync(**fields: Any) -> farm_wire.Sync:
    return farm_wire.Sync(session="s", **fields)


def another_s_job(site: Site) -> bytes:
    """Something of somebody else: a batch, or a lease."""
    if site.service is BOARD:
        return _call(site, "alice", "cancel", wire.encode_job("0" * 32))
    stolen = Released(client="", fence=site.rng.randrange(100), results=1)
    return _call(site, "alice", "sync", farm_wire.encode_sync(_sync(releases=(stolen,))))


def replay(site: Site) -> bytes:
    """The bytes of a recorded TLS session, sent again."""
    recorded = ssl.MemoryBIO()
    context = site.credentials("alice").context(server=False)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), recorded).do_handshake()
    hello = recorded.read()
    return send(site.plain(), hello + hello + site.junk())


def objects_without_right(site: Site) -> bytes:
    message = json.loads(BOARD.message())
    message["requests"][0]["built"] = {"code": "AAAA", "packs": []}
    return _call(site, "alice", site.service.method, json.dumps(message).encode())


def wrong_role(site: Site) -> bytes:
    """A board that tunes, a client that decides about boards or says that it is one."""
    if site.service is BOARD or site.rng.random() < 1 / 3:
        return _call(site, "board", site.service.method, good(site))
    if site.rng.random() < 1 / 2:
        return _call(site, "alice", "command", farm_wire.encode_command("b0", "drain"))
    event = Registered(board="b0", key="k", address="h:1", secret="s")
    return _call(site, "alice", "register", farm_wire.encode_register(event))


def expired(site: Site) -> bytes:
    return _call(site, "old", site.service.method, good(site))


def revoked(site: Site) -> bytes:
    return _call(site, "gone", site.service.method, good(site))


def foreign(site: Site) -> bytes:
    return _call(site, "stranger", site.service.method, good(site))


def no_certificate(site: Site) -> bytes:
    """TLS as it should be, but for a certificate; goes on talking when it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    message = request(1, consts.HANDLE_CALL, site.service.method, good(site))
    return send(context.wrap_socket(site.plain()), message * 50)


def sealed_for_another(site: Site) -> bytes:
    """A message of a link without TLS, on one with it."""
    sealed = seal(
        site.rng.randbytes(32), site.rng.randrange(1, 99), site.service.method, good(site)
    )
    return _call(site, "alice", site.service.method, sealed)


def no_tls(site: Site) -> bytes:
    return send(site.plain(), request(1, consts.HANDLE_CALL, site.service.method, good(site)))


def slow_frame(site: Site) -> ssl.SSLSocket | None:
    """A connection that says that a frame comes, and sends some of it; None if it was closed."""
    size = site.rng.choice((wire.SMALL_BYTES - 1, wire.MAX_MESSAGE_BYTES))
    sock = None
    try:
        sock = site.secured("alice")
        sock.sendall(HEADER.pack(size, site.rng.randrange(2)) + bytes(min(size, 1 << 20) * 3 // 4))
    except OSError:  # a frame that is too large is not waited for
        if sock is not None:
            sock.close()
        return None
    return sock


def far_fence(site: Site) -> bytes:
    """A member of the farm says that it served a lease which nobody granted."""
    event = Registered(
        board="rogue", key="j", address="h:1", secret="r", info={"floor": (1 << 53) - 1}
    )
    return _call(site, "board", "register", farm_wire.encode_register(event))


ATTACKS: tuple[Callable[[Site], bytes], ...] = (
    random_bytes, random_inside_tls, truncated_frame, oversized_frame, decompression_bomb,
    packed_hello, deep_message, many_parts, damaged_json, damaged_call, wrong_version,
    wrong_schema, other_handler, another_s_job, replay, objects_without_right, wrong_role,
    expired, revoked, foreign, no_certificate, sealed_for_another, no_tls,
)  # fmt: skip
