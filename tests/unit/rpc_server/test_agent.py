"""A board's side of the farm: what it tells the tracker, and what it does when told."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rpc_server.board.agent import Agent, Membership, Post, check_place, check_reset, temperature_c
from rpc_server.board.lease_guard import Gate, make_ticket
from rpc_server.security.auth import local_peer
from rpc_server.tracker.link import Backoff, TrackerLink
from rpc_server.tracker.types import FarmError
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.link import LinkLostError


@dataclass
class ToldLink:
    """A tracker that answers as told; LinkLostError when there is nothing left to say."""

    replies: list[bytes | Callable[[], bytes]]
    calls: list[str] = field(default_factory=list)
    address: str = "t:1"
    on_empty: Callable[[], None] = lambda: None

    def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        del payload, timeout_s
        self.calls.append(name)
        if not self.replies:
            self.on_empty()
            raise LinkLostError("gone")
        reply = self.replies.pop(0)
        return reply() if callable(reply) else reply

    def close(self) -> None:
        return None


def standing(*, floor: int = 1, reset: bool = False, heartbeat_s: float = 0.0) -> bytes:
    return farm_wire.encode_board_status(
        farm_wire.BoardStatus(floor=floor, state="idle", reset=reset, heartbeat_s=heartbeat_s)
    )


def run_agent(replies: list[bytes | Callable[[], bytes]], **changes: object) -> list[object]:
    """What an agent does with these answers, until there are none."""
    done: list[object] = []
    fields = {
        "name": "b", "key": "k", "address": "h:1", "gate": Gate("s"), "info": dict,
        "stats": dict, "raise_floor": lambda floor: done.append(("floor", floor)),
        "remeasure": lambda: done.append("remeasured"), **changes,
    }  # fmt: skip
    link = ToldLink(replies)
    agent = Agent(
        Post(**fields),  # type: ignore[arg-type]
        link,  # type: ignore[arg-type]
        generator=random.Random(0),
        say=lambda _: None,
    )
    link.on_empty = agent._stopped.set
    agent.run()
    return [*link.calls, *done]


def test_an_agent_registers_and_beats() -> None:
    assert run_agent([standing(), standing(floor=7)]) == [
        "register", "beat", "beat", ("floor", 1), ("floor", 7),
    ]  # fmt: skip


def test_an_agent_that_is_not_known_any_more_registers_again() -> None:
    unknown = wire.encode_error("the board b is not registered; register it again")
    assert run_agent([standing(), unknown, standing()])[:4] == [
        "register", "beat", "register", "beat",
    ]  # fmt: skip


def test_an_agent_whose_leases_the_tracker_has_not_come_to_begins_anew() -> None:
    """A board that was told of a fence nobody granted, or a tracker that lost its file."""
    gate = Gate("s")
    gate.raise_floor(1 << 53)
    done = run_agent([standing(floor=8), b"", standing(floor=8), standing(floor=9)], gate=gate)
    assert done[:4] == ["register", "bye", "register", "beat"]
    assert done[-3:] == [("floor", (1 << 53) + 1), ("floor", 8), ("floor", 9)]
    assert gate.secret != "s"
    gate.admit(1, local_peer(""), make_ticket(gate.secret, 9, "local"))
    with pytest.raises(FarmError, match="not of this board's lease"):
        gate.admit(1, local_peer(""), make_ticket("s", 1 << 54, "local"))


def test_a_reset_runs_the_command_and_measures_anew(tmp_path: Path) -> None:
    made = tmp_path / "reset"
    done = run_agent([standing(reset=True), standing()], reset_command=f"touch {made}")
    assert made.exists()
    assert done[:2] == ["register", "register"]
    assert "remeasured" in done


def test_a_reset_that_fails_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "remeasured" not in run_agent([standing(reset=True)], reset_command="false")
    assert "the reset failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "option"),
    [
        (Membership(name="a b#c", key="k", address="h:1"), "--name"),
        (Membership(name="b", key="<k>", address="h:1"), "--key"),
        (Membership(name="b", key="k", address="h'"), "--advertise"),
    ],
)
def test_names_the_tracker_would_not_take_are_refused(place: Membership, option: str) -> None:
    with pytest.raises(FarmError, match=f"{option}: expected a name of plain characters"):
        check_place(place)


@pytest.mark.parametrize("command", ["no-such-program-here --now", "'unfinished"])
def test_a_reset_that_cannot_be_started_is_refused_beforehand(command: str) -> None:
    with pytest.raises(FarmError, match="--reset-command"):
        check_reset(command)
    check_reset("")
    check_reset("true --now")


def test_the_hottest_sensor_is_read(tmp_path: Path) -> None:
    assert temperature_c(tmp_path) is None
    for number, reading in enumerate(("41000", "55500", "broken")):
        (tmp_path / f"thermal_zone{number}").mkdir()
        (tmp_path / f"thermal_zone{number}" / "temp").write_text(reading, encoding="ascii")
    assert temperature_c(tmp_path) == 55.5


def test_pauses_grow_to_a_limit_and_differ_between_peers() -> None:
    one, other = (Backoff(0.1, 2.0, random.Random(seed)) for seed in (1, 2))
    pauses = [one.pause_s() for _ in range(10)]
    assert pauses != [other.pause_s() for _ in range(10)]
    assert all(0.05 <= p <= 2.0 for p in pauses)
    assert pauses[-1] >= 1.0
    one.reset()
    assert one.pause_s() <= 0.1
    one.reset(longest_s=0.4)
    assert max(one.pause_s() for _ in range(10)) <= 0.4


def test_a_board_is_back_soon_after_a_tracker_that_was_away_for_long() -> None:
    waits: list[float] = []

    class Waits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) > 12

    link = ToldLink([standing(heartbeat_s=0.2)])
    post = Post(name="b", key="k", address="h:1", gate=Gate("s"), info=dict, stats=dict,
                raise_floor=lambda _: None, remeasure=lambda: None)  # fmt: skip
    agent = Agent(post, link, generator=random.Random(0), say=lambda _: None)  # type: ignore[arg-type]
    agent._stopped = Waits()
    link.on_empty = lambda: agent._stopped.set() if len(waits) > 12 else None
    agent.run()
    assert len(waits) > 12
    assert max(waits) <= 0.4


def test_a_closed_link_calls_nobody() -> None:
    link = TrackerLink("127.0.0.1", 1)
    link.close()
    with pytest.raises(LinkLostError, match="closed"):
        link.call("status", b"", 1.0)
