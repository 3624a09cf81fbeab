"""A rogue board: it speaks the protocol, and says what it likes.

In: a tracker's address, answers to `submit` and `collect`. Out: a registered board of key k, on
threads of this process.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from autotune.measure.types import MeasureResult, Status
from rpc_server.board.agent import Agent, Post
from rpc_server.board.lease_guard import Gate
from rpc_server.board.server import parse_address
from rpc_server.security.auth import Peer, Role
from rpc_server.tracker.link import TrackerLink
from rpc_server.wire import messages as wire
from rpc_server.wire.listener import Listener, Methods, ServerAccess
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes

Answer = Callable[[bytes], bytes]
DONE = MeasureResult(status=Status.OK, times_s=(1.0,), device="rogue")


def welcome(_: bytes) -> bytes:
    profile = fakes.FakeExecutor().profile(fakes.request(fakes.GOOD).target)
    return wire.encode_hello(wire.Hello(profile=profile, version="1"))


def queued(_: bytes) -> bytes:
    return wire.encode_job("job")


def never_done(_: bytes) -> bytes:
    return wire.encode_progress(wire.JobProgress(results=(), done=False))


def results_with(**fields: Any) -> Answer:
    """More results than anybody asked for, with these fields in the JSON."""

    def collect(_: bytes) -> bytes:
        message = json.loads(
            wire.encode_progress(wire.JobProgress(results=(DONE,) * 64, done=True))
        )
        for result in message["results"]:
            result.update(fields)
        return json.dumps(message).encode()

    return collect


@contextlib.contextmanager
def open_listener(hello: Answer, submit: Answer, collect: Answer) -> Iterator[Listener]:
    """A board's listener on loopback."""
    methods: Methods = {
        "hello": hello, "submit": submit, "collect": collect, "cancel": queued,
    }  # fmt: skip

    def enter(_: Peer) -> tuple[Methods, Callable[[], None]]:
        return methods, lambda: None

    listener = Listener("127.0.0.1", 0, ServerAccess(enter=enter, roles=frozenset({Role.CLIENT})))
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.close()
        thread.join(timeout=PATIENCE_S)


@contextlib.contextmanager
def rogue_board(
    tracker: str,
    name: str,
    *,
    hello: Answer = welcome,
    submit: Answer = queued,
    collect: Answer = never_done,
) -> Iterator[str]:
    """Its own address; in the farm at `tracker`, 'HOST:PORT' too, until the end."""
    with open_listener(hello, submit, collect) as listener:
        gate = Gate("rogue")
        profile = fakes.FakeExecutor().profile(fakes.request(fakes.GOOD).target)
        address = f"127.0.0.1:{listener.port}"
        post = Post(
            name=name, key="k", address=address, gate=gate,
            info=lambda: {"profile": profile.to_json()}, stats=dict,
            raise_floor=gate.raise_floor, remeasure=lambda: None,
        )  # fmt: skip
        there = threading.Event()
        agent = Agent(
            post,
            TrackerLink(*parse_address(tracker)),
            generator=random.Random(0),
            say=lambda _: there.set(),
        )
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        assert there.wait(PATIENCE_S)
        try:
            yield address
        finally:
            agent.stop()
            thread.join(timeout=PATIENCE_S)
