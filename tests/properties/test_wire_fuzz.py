"""Decoders under messages that peers have damaged: only the protocol's error comes out.

A million of them in the slow suite, 28,000 in the fast one, from the same seeded generator.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from rpyc.core import brine, consts

from autotune.errors import DeviceError
from rpc_server.board.lease_guard import Gate, make_ticket
from rpc_server.security.auth import Peer, Role, local_peer
from rpc_server.tracker.service import Tracker
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import FarmError, FarmRules
from rpc_server.wire.scan import check_packet
from tests.properties.wire_messages import KINDS, Kind, mutated

FEW = 2_000
DEAR = {"submit": 30_000, "boards": 40_000, "welcome": 50_000}
"""Of kinds whose decoders have most to do."""
EACH, REST = divmod(1_000_000 - sum(DEAR.values()), len(KINDS) - len(DEAR))
MANY = dict.fromkeys(KINDS, EACH) | DEAR | {"hello": EACH + REST}


def survivors(kind: Kind, rng: random.Random, count: int) -> int:
    """How many messages a decoder took. Raises AssertionError with one that it choked on."""
    taken = 0
    for _ in range(count):
        data = mutated(kind, rng)
        try:
            kind.decode(data)
            taken += 1
        except DeviceError:
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} {error} for {data!r:.2000}") from error
    return taken


@pytest.mark.parametrize("name", KINDS)
def test_only_the_protocol_s_error_comes_out(name: str) -> None:
    taken = survivors(KINDS[name], random.Random(1), FEW)
    assert 0 < taken < FEW  # some damage makes another valid message, most does not


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_only_the_protocol_s_error_comes_out_of_a_million(name: str) -> None:
    assert 0 < survivors(KINDS[name], random.Random(2), MANY[name]) < MANY[name]


def test_a_million_is_a_million() -> None:
    assert sum(MANY.values()) == 1_000_000


def packets(rng: random.Random, count: int) -> Iterator[bytes]:
    """rpyc's calls, damaged."""
    boxed = tuple((consts.LABEL_VALUE, v) for v in ("submit", b"x" * 300))
    call = brine.dump((1, (consts.HANDLE_CALL, (consts.LABEL_TUPLE, boxed))))
    for _ in range(count):
        data = bytearray(brine.I1.pack(consts.MSG_REQUEST) + call)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(min(40, len(data)))] = rng.randrange(256)
        yield bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])


def test_what_passes_as_a_packet_is_read_by_rpyc_into_few_parts() -> None:
    passed = 0
    for data in packets(random.Random(3), 20_000):
        try:
            check_packet(data)
        except ValueError:
            continue
        passed += 1
        try:
            brine.load(data[1:])
        except ValueError:  # text that is not UTF-8, a number of letters: what ends a link
            continue
    assert passed > 100


def test_tickets_that_are_damaged_are_refused_as_such() -> None:
    rng, gate, peer = random.Random(4), Gate("secret"), local_peer("")
    ticket = make_ticket("secret", 4, "local")
    for _ in range(5_000):
        text = list(ticket)
        text[rng.randrange(len(text))] = chr(rng.choice((0, 59, 255, 0xD7FF, 0x1F600)))
        with pytest.raises(FarmError, match="not of this board's lease"):
            gate.admit(1, peer, "".join(text))


@pytest.mark.parametrize("name", ["register", "beat", "sync", "key", "command"])
def test_a_tracker_answers_whatever_it_is_sent(name: str) -> None:
    """What a decoder took does no harm behind it either."""
    ticks = iter(range(0, 1 << 40, 10))
    store = StateStore(None)
    tracker = Tracker(
        FarmRules(max_boards=8), store, version="1", clock=lambda: float(next(ticks))
    )
    rng, peer = random.Random(5), Peer(name="local", role=Role.LOCAL)
    call = tracker.enter(peer)[0]
    began_s = time.monotonic()
    for _ in range(400):
        assert call[name](mutated(KINDS[name], rng)).startswith(b'{"v":')
        assert call["sync"](mutated(KINDS["sync"], rng))
        assert call["status"](b'{"v":3,"kind":"status"}')
    assert time.monotonic() - began_s < 60
    tracker.stop()
    store.close()
