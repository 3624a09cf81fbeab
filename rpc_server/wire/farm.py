"""Messages between the tracker and its boards, clients and operators; see `messages`.

In: values. Out: bytes, and back, checked. A client has one message, `sync`: what it asks for,
gives back and still holds. The answer is the whole truth about it, so a lost message costs
nothing: what it asked for is granted, waiting, or over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpc_server.tracker.types import Asked, Beat, Registered, Released
from rpc_server.wire import messages as wire
from rpc_server.wire.checks import flag, listed, name, natural, number, text

MAX_INFO_BYTES = 16 << 10
MAX_SYNC = 1024
MAX_QUEUE_S = 7 * 86400.0
MAX_ERROR = 300
"""Bounds of what boards and clients may say, chosen above all that ours do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A client's message. `version`: of the last view it saw; the tracker answers when there is
    another one, or after `wait_s`."""

    session: str
    asks: tuple[Asked, ...] = ()
    withdrawn: tuple[str, ...] = ()
    releases: tuple[Released, ...] = ()
    renew: tuple[int, ...] = ()
    version: int = -1
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A board in this client's hands."""

    fence: int
    request: str
    board: str
    address: str
    ticket: str
    recalled: bool


_GRANT = tuple(f.name for f in dataclasses.fields(Grant))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A client's leases and requests. `notes`: why something else is over, by request name or
    'lease N'; they are sent for as long as the client is known. `run`: of the tracker's process,
    within which versions grow."""

    version: int
    waiting: tuple[str, ...]
    grants: tuple[Grant, ...]
    notes: Mapping[str, str]
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStatus:
    """The answer to a board's `register` and `beat`."""

    floor: int
    state: str
    reset: bool
    heartbeat_s: float


def encode_register(event: Registered) -> bytes:
    return wire.encode("register", dataclasses.asdict(event))


def decode_register(data: bytes) -> Registered:
    message = wire.decode("register", data)
    with wire.checked("register"):
        return Registered(
            board=name(message["board"]),
            key=name(message["key"]),
            address=name(message["address"]),
            secret=name(message["secret"]),
            info=_board_info(message["info"], data),
        )


def encode_beat(event: Beat) -> bytes:
    return wire.encode("beat", dataclasses.asdict(event))


def decode_beat(data: bytes) -> Beat:
    message = wire.decode("beat", data)
    with wire.checked("beat"):
        return Beat(
            board=name(message["board"]),
            secret=name(message["secret"]),
            stats=_stats(message["stats"], data),
        )


def encode_board_status(status: BoardStatus) -> bytes:
    return wire.encode("standing", dataclasses.asdict(status))


def decode_board_status(data: bytes) -> BoardStatus:
    message = wire.decode("standing", data)
    with wire.checked("standing"):
        return BoardStatus(
            floor=natural(message["floor"]),
            state=name(message["state"]),
            reset=flag(message["reset"]),
            heartbeat_s=number(message["heartbeat_s"], 0.0, 3600.0),
        )


def encode_sync(sync: Sync) -> bytes:
    fields = {
        "session": sync.session,
        "asks": [[a.request, a.key, a.priority, a.queue_s] for a in sync.asks],
        "withdrawn": list(sync.withdrawn),
        "releases": [
            [r.fence, r.results, r.fault[:MAX_ERROR], *([True] if r.unsound else [])]
            for r in sync.releases
        ],
        "renew": list(sync.renew),
        "version": sync.version,
        "wait_s": sync.wait_s,
    }
    return wire.encode("sync", fields)


def decode_sync(data: bytes, client: str) -> Sync:
    """`client`: who the link says it is; a session belongs to it."""
    message = wire.decode("sync", data)
    with wire.checked("sync"):
        session = f"{client}#{name(message['session'])}"
        asks, withdrawn, releases, renew = (
            listed(message[k], MAX_SYNC) for k in ("asks", "withdrawn", "releases", "renew")
        )
        return Sync(
            session=session,
            asks=tuple(_ask(session, *a) for a in asks),
            withdrawn=tuple(name(w) for w in withdrawn),
            releases=tuple(_release(session, *r) for r in releases),
            renew=tuple(natural(r) for r in renew),
            version=_version(message["version"]),
            wait_s=number(message["wait_s"], 0.0, wire.MAX_WAIT_S),
        )


def _release(
    session: str, fence: object, results: object, fault: object, unsound: object = False
) -> Released:
    return Released(
        client=session,
        fence=natural(fence),
        results=natural(results),
        fault=_line(text(fault)),
        unsound=flag(unsound),
    )


def _version(value: object) -> int:
    """The version of a view; -1 is before the first one."""
    return -1 if value == -1 else natural(value)


def _ask(session: str, request: object, key: object, priority: object, queue_s: object) -> Asked:
    if type(priority) is not int or not -100 <= priority <= 100:
        raise ValueError(f"a priority is a whole number from -100 to 100, got {priority!r}")
    return Asked(
        client=session,
        request=name(request),
        key=name(key),
        priority=priority,
        queue_s=number(queue_s, 0.0, MAX_QUEUE_S),
    )


def encode_view(view: View) -> bytes:
    fields = {
        "version": view.version,
        "waiting": view.waiting,
        "grants": [{name: getattr(g, name) for name in _GRANT} for g in view.grants],
        "notes": view.notes,
        "run": view.run,
    }
    return wire.encode("view", fields)


def decode_view(data: bytes) -> View:
    message = wire.decode("view", data)
    with wire.checked("view"):
        notes = message["notes"]
        if type(notes) is not dict or len(notes) > MAX_SYNC:
            raise ValueError(f"at most {MAX_SYNC} notes")
        return View(
            version=natural(message["version"]),
            waiting=tuple(name(w) for w in listed(message["waiting"], MAX_SYNC)),
            grants=tuple(_grant(**g) for g in listed(message["grants"], MAX_SYNC)),
            notes={name(k): text(v) for k, v in notes.items()},
            run=text(message.get("run", ""), wire.MAX_NAME),
        )


def _grant(
    *, fence: object, request: object, board: object, address: object, ticket: object,
    recalled: object,
) -> Grant:  # fmt: skip
    return Grant(
        fence=natural(fence),
        request=name(request),
        board=name(board),
        address=name(address),
        ticket=text(ticket, wire.TICKET),
        recalled=flag(recalled),
    )


def encode_command(board: str, command: str) -> bytes:
    return wire.encode("command", {"board": board, "command": command})


def decode_command(data: bytes) -> tuple[str, str]:
    message = wire.decode("command", data)
    with wire.checked("command"):
        return name(message["board"]), name(message["command"])


def encode_key(key: str) -> bytes:
    return wire.encode("key", {"key": key})


def decode_key(data: bytes) -> str:
    message = wire.decode("key", data)
    with wire.checked("key"):
        return name(message["key"])


def _line(value: str) -> str:
    return " ".join(value.split())[:MAX_ERROR]


def _board_info(value: object, data: bytes) -> Mapping[str, Any]:
    info = _info(value, data)
    natural(info.get("floor", 0))  # whether it is believed, the tracker decides
    bounds = info.get("sandbox", {})
    if not isinstance(bounds, dict) or not all(isinstance(why, str) for why in bounds.values()):
        raise ValueError("a sandbox is a table of bounds and why they do not hold")
    return info


def _stats(value: object, data: bytes) -> Mapping[str, Any]:
    """Counts and a temperature, and one line of text: operators see them."""
    stats = _info(value, data)
    if not all(v is None or isinstance(v, int | float | str) for v in stats.values()):
        raise ValueError("what a board says with every beat is numbers and text")
    numbers = {n: stats.get(n) for n in ("trials", "failed", "queued", "temperature_c")}
    if any(isinstance(v, str) for v in numbers.values()):
        raise ValueError(f"expected numbers, got {numbers!r:.200}")
    return stats


def _info(value: object, data: bytes) -> Mapping[str, Any]:
    if not isinstance(value, dict) or len(data) > MAX_INFO_BYTES:
        raise ValueError(f"a board says at most {MAX_INFO_BYTES} bytes about itself")
    return value
