"""One board to work with for a while. In: 'rpc://HOST:PORT' or 'tracker://HOST:PORT/KEY'. Out: its
runner; a tracker's board is leased, and given back at the end."""

from __future__ import annotations

import contextlib
import queue
import random
import time
from collections.abc import Iterator

from autotune.errors import DeviceError
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.farm_batch import FarmAddress
from rpc_server.client.leases import LeaseSession, LeaseTerms, News
from rpc_server.client.options import FarmOptions
from rpc_server.security.tls import Credentials
from rpc_server.tracker.link import Backoff, TrackerLink
from rpc_server.wire.farm import Grant

LOOK_S = 0.25
"""Seconds between two looks whether the user gave up."""


@contextlib.contextmanager
def one_board(
    device: str, *, credentials: Credentials | None = None, farm: FarmOptions | None = None
) -> Iterator[RpcRunner]:
    """Raises DeviceError where there is no board there, or none is free in time."""
    if device.startswith("rpc://"):
        with RpcRunner(device, credentials=credentials) as runner:
            yield runner
    elif device.startswith("tracker://"):
        with _leased(FarmAddress.parse(device), credentials, farm or FarmOptions()) as runner:
            yield runner
    else:
        raise DeviceError(
            f"expected the device rpc://HOST:PORT or tracker://HOST:PORT/KEY, got {device!r}"
        )


@contextlib.contextmanager
def _leased(
    address: FarmAddress, credentials: Credentials | None, farm: FarmOptions
) -> Iterator[RpcRunner]:
    granted: queue.SimpleQueue[Grant] = queue.SimpleQueue()
    holder: list[RpcRunner] = []

    def lost(_fence: int, _reason: str) -> None:
        for runner in holder:
            runner.give_up()

    links = [TrackerLink(address.host, address.port, credentials) for _ in range(2)]
    session = LeaseSession(
        links[0],
        links[1],
        News(granted=granted.put, recalled=lambda _: None, lost=lost),
        LeaseTerms(address.key, farm.priority, farm.deadlines.queue_s),
        backoff=Backoff(0.1, 2.0, random.Random()),
        clock=time.monotonic,
    )
    try:
        session.want(1)
        grant = _awaited(granted, session, address, farm.deadlines.queue_s)
        session.want(0)
        with RpcRunner(
            f"rpc://{grant.address}",
            deadlines=farm.deadlines,
            credentials=credentials,
            ticket=grant.ticket,
        ) as runner:
            holder.append(runner)
            yield runner
    finally:
        session.close()


def _awaited(
    granted: queue.SimpleQueue[Grant], session: LeaseSession, address: FarmAddress, queue_s: float
) -> Grant:
    """The grant, once there is one."""
    until = time.monotonic() + queue_s
    while time.monotonic() < until and not session.refused:
        with contextlib.suppress(queue.Empty):
            return granted.get(timeout=LOOK_S)
    why = session.refused or session.trouble or "all are leased, drained, quarantined or offline"
    raise DeviceError(
        f"no board of key {address.key} from {address.host}:{address.port} within {queue_s:g} s: "
        f"{why}"
    )
