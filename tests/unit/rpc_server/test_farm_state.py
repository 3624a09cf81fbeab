"""Who gets a board, for how long, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from rpc_server.tracker.state import FarmState
from rpc_server.tracker.types import (
    Action,
    Asked,
    Beat,
    Ended,
    FarmError,
    Granted,
    LeaseEnded,
    Recalled,
    Released,
    Renewed,
    Restarted,
    Tick,
    Withdrawn,
)
from tests.unit.rpc_server.paper_farm import RULES, Farm


@pytest.fixture
def farm() -> Farm:
    farm = Farm()
    farm.board()
    return farm


def served(actions: tuple[Action, ...]) -> list[str]:
    return [a.client for a in actions if isinstance(a, Granted)]


def test_the_higher_priority_is_served_first(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("b", priority=0)
    farm.ask("c", priority=1)
    assert served(farm.release("a")) == ["c"]


def test_clients_take_turns_whatever_they_ask_for(farm: Farm) -> None:
    for _ in range(4):
        farm.ask("greedy")
    farm.ask("modest")
    order = ["greedy"]
    while farm.state.requests:
        order += served(farm.release(order[-1]))
    assert order == ["greedy", "modest", "greedy", "greedy", "greedy"]


def test_asking_again_after_every_lease_does_not_overtake_those_who_wait(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("b")
    farm.ask("c")
    order = ["a"]
    for _ in range(8):
        farm.ask(order[-1])
        order += served(farm.release(order[-1]))
    assert order == ["a", "b", "c"] * 3


def test_boards_are_shared_by_number_not_by_requests(farm: Farm) -> None:
    for name in ("b1", "b2", "b3"):
        farm.board(name)
    for _ in range(6):
        farm.ask("greedy")
    farm.wait(RULES.slice_s)
    farm.ask("modest")
    farm.ask("modest")
    recalled = [a.fence for a in farm.wait(1) if isinstance(a, Recalled)]
    recalled += [x.fence for x in farm.state.leases.values() if x.recalled_s is not None]
    for fence in sorted(set(recalled)):
        farm.send(Released(client="greedy", fence=fence, results=1))
    assert len(farm.state.leases_of("greedy")) == len(farm.state.leases_of("modest")) == 2


def test_a_low_priority_does_not_starve(farm: Farm) -> None:
    """One board, a new client of higher priority every ten seconds, for ever."""
    farm.ask("patient", priority=0)
    farm.release("patient")
    farm.ask("busy0", priority=3)
    farm.ask("patient", priority=0, queue_s=1e6)
    waited = 0
    for number in range(1, 100):
        if farm.state.leases_of("patient"):
            break
        farm.ask(f"busy{number}", priority=3, queue_s=1e6)
        farm.wait(10)
        waited += 10
        (lease,) = farm.state.leases.values()
        farm.release(lease.client)
    assert farm.state.leases_of("patient")
    assert waited <= 4 * RULES.age_s + 10


def test_a_lease_is_asked_back_for_a_higher_priority_at_once(farm: Farm) -> None:
    farm.ask("a", priority=0)
    farm.ask("b", priority=1)
    assert farm.lease("a").recalled_s == farm.now_s


def test_a_lease_is_asked_back_after_its_slice_if_others_wait(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("b")
    assert not farm.wait(RULES.slice_s - 1)
    assert [a.client for a in farm.wait(2) if isinstance(a, Recalled)] == ["a"]


def test_a_lease_that_is_not_given_back_is_ended(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("b")
    actions = farm.wait(RULES.slice_s + RULES.recall_grace_s + 10)
    (ended,) = [a for a in actions if isinstance(a, LeaseEnded)]
    assert ended.client == "a"
    assert "not given back within 20 s" in ended.reason
    assert farm.lease("b")
    assert farm.stands() == "leased"
    assert farm.state.boards["b0"].faults == 0


def test_nobody_is_asked_for_more_boards_than_are_waited_for(farm: Farm) -> None:
    farm.board("b1")
    farm.ask("a")
    farm.ask("a")
    farm.ask("b")
    farm.wait(RULES.slice_s + 5)
    assert sum(x.recalled_s is not None for x in farm.state.leases.values()) == 1


def test_a_lease_nobody_renews_is_granted_again(farm: Farm) -> None:
    farm.ask("a")
    farm.wait(5)
    farm.ask("b")
    for _ in range(9):
        farm.now_s += 1
        farm.send(Beat(board="b0", secret="s"))
        farm.send(Renewed(client="b"))
        farm.send(Tick())
    assert farm.lease("b")


def test_requests_of_a_client_that_went_away_end(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("a")
    actions = farm.wait(10, renewing=False)
    assert [a.reason for a in actions if isinstance(a, Ended)] == ["its client went away"]
    assert not farm.state.clients()


def test_a_request_ends_at_its_deadline(farm: Farm) -> None:
    farm.ask("a")
    name = farm.ask("b", queue_s=5.0)
    (ended,) = [a for a in farm.wait(7) if isinstance(a, Ended)]
    assert (ended.request, ended.reason) == (name, "no board came free in time")


def test_a_request_that_is_withdrawn_is_over(farm: Farm) -> None:
    farm.ask("a")
    name = farm.ask("b")
    (ended,) = farm.send(Withdrawn(client="b", request=name))
    assert ended == Ended(client="b", request=name, reason="withdrawn")
    assert served(farm.release("a")) == []


# ------------------------------------------------------------------------------------------ limits


def test_a_key_without_boards_is_refused_with_those_there_are(farm: Farm) -> None:
    with pytest.raises(FarmError, match="keys there are: k;"):
        farm.send(Asked(client="a", request="r", key="rpi9"))
    assert not farm.state.clients()


def test_requests_of_a_client_are_limited() -> None:
    farm = Farm(FarmState(dataclasses.replace(RULES, max_requests_per_client=2)))
    farm.board()
    for _ in range(3):
        farm.ask("a")
    with pytest.raises(FarmError, match="2 requests of yours"):
        farm.ask("a")
    farm.ask("b")


def test_sessions_of_one_certificate_share_its_limit() -> None:
    farm = Farm(FarmState(dataclasses.replace(RULES, max_requests_per_client=2)))
    farm.board()
    for session in range(3):
        farm.ask(f"alice#{session}")
    with pytest.raises(FarmError, match="2 requests of yours"):
        farm.ask("alice#3")
    assert "alice#3" not in farm.state.clients()
    for session in range(5):
        farm.ask(f"local#{session}")


def test_the_queue_is_limited() -> None:
    farm = Farm(FarmState(dataclasses.replace(RULES, max_requests=2)))
    farm.board()
    for client in "abc":
        farm.ask(client)
    with pytest.raises(FarmError, match="the queue is full"):
        farm.ask("d")
    assert farm.state.clients() == {"a", "b", "c"}


def test_boards_are_limited() -> None:
    farm = Farm(FarmState(dataclasses.replace(RULES, max_boards=1)))
    farm.board()
    with pytest.raises(FarmError, match="the farm is full"):
        farm.board("b1")


def test_fences_go_on_where_boards_have_seen_them() -> None:
    """The tracker lost its file: what it grants now must not look old to the boards."""
    farm = Farm()
    farm.board(floor=41)
    farm.ask("a")
    assert farm.lease("a").fence == 42


def test_a_lease_of_another_client_cannot_be_released_or_renewed(farm: Farm) -> None:
    farm.ask("a")
    lease = farm.lease("a")
    farm.now_s += 2
    assert farm.send(Released(client="b", fence=lease.fence, results=1)) == ()
    farm.send(Renewed(client="b", fences=(lease.fence,)))
    assert farm.lease("a") == lease


def test_after_a_restart_nobody_is_late(farm: Farm) -> None:
    farm.ask("a")
    lease = farm.lease("a")
    farm.now_s += 1000
    farm.send(Restarted())
    farm.send(Tick())
    assert farm.lease("a").fence == lease.fence
    farm.wait(20, renewing=False)
    assert not farm.state.leases


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    farm = Farm(now_s=1e6)
    farm.board("b0")
    for _ in range(RULES.fault_limit):
        farm.ask("a")
        farm.release("a", fault="died")
    farm.board("b1")
    farm.ask("a")
    farm.ask("b", queue_s=40.0)
    assert (farm.stands("b0"), farm.stands("b1")) == ("quarantined", "leased")
    farm.now_s = 0.0
    farm.send(Restarted())
    asked_back = [a.client for a in farm.wait(RULES.slice_s + 1) if isinstance(a, Recalled)]
    assert asked_back == ["a"]
    assert "b" in [a.client for a in farm.wait(10) if isinstance(a, Ended)]
    farm.wait(RULES.longest_quarantine_s)
    assert farm.stands("b0") != "quarantined"
