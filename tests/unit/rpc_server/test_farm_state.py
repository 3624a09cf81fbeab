"""Who gets a board, and when a board is taken out of service."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from rpc_server.farm_state import FarmState
from rpc_server.farm_types import (
    Action,
    Asked,
    Beat,
    BoardGone,
    Commanded,
    Ended,
    Event,
    FarmError,
    Granted,
    Lease,
    LeaseEnded,
    Recalled,
    Registered,
    Released,
    Renewed,
    Restarted,
    Rules,
    Tick,
    Withdrawn,
)

RULES = Rules(slice_s=30.0, age_s=60.0, quarantine_s=60.0, recall_grace_s=20.0)


@dataclass
class Farm:
    """A state and its clock; every client renews, every board beats, unless told otherwise."""

    state: FarmState = field(default_factory=lambda: FarmState(RULES))
    now_s: float = 0.0
    asked: int = 0

    def send(self, event: Event) -> tuple[Action, ...]:
        return self.state.apply(self.now_s, event)

    def board(self, name: str = "b0", *, secret: str = "s", **info: object) -> None:
        self.send(Registered(board=name, key="k", address="a:1", secret=secret, info=info))

    def ask(self, client: str, *, priority: int = 0, queue_s: float = 600.0) -> str:
        self.asked += 1
        name = f"r{self.asked}"
        event = Asked(client=client, request=name, key="k", priority=priority, queue_s=queue_s)
        self.send(event)
        return name

    def lease(self, client: str) -> Lease:
        (lease,) = self.state.leases_of(client)
        return lease

    def release(self, client: str, *, results: int = 1, fault: str = "") -> tuple[Action, ...]:
        fence = self.lease(client).fence
        event = Released(client=client, fence=fence, results=results, fault=fault)
        return self.send(event)

    def wait(self, seconds: float, *, beating: bool = True, renewing: bool = True) -> list[Action]:
        """Let time pass by the second."""
        actions: list[Action] = []
        for _ in range(int(seconds)):
            self.now_s += 1
            for board in list(self.state.boards.values()):
                if beating:
                    self.send(Beat(board=board.name, secret=board.secret))
            for client in self.state.clients():
                fences = tuple(lease.fence for lease in self.state.leases_of(client))
                if renewing:
                    self.send(Renewed(client=client, fences=fences))
            actions += self.send(Tick())
        return actions

    def stands(self, board: str = "b0") -> str:
        return self.state.state_of(self.state.boards[board], self.now_s)


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


# ------------------------------------------------------------------------------------------ boards


def test_a_silent_board_loses_its_lease_and_its_place(farm: Farm) -> None:
    farm.ask("a")
    actions = farm.wait(10, beating=False)
    (ended,) = [a for a in actions if isinstance(a, LeaseEnded)]
    assert "not heard of for 8 s" in ended.reason
    assert farm.stands() == "offline"
    assert farm.state.boards["b0"].faults == 1


def test_a_board_that_reconnects_keeps_its_lease(farm: Farm) -> None:
    farm.ask("a")
    lease = farm.lease("a")
    farm.send(BoardGone(board="b0", secret="s"))
    farm.wait(3)
    farm.board()
    assert farm.lease("a").fence == lease.fence


def test_a_board_that_was_started_again_has_lost_it(farm: Farm) -> None:
    farm.ask("a")
    farm.send(BoardGone(board="b0", secret="s"))
    farm.board(secret="other")
    assert not farm.state.leases
    assert farm.state.boards["b0"].last_error == "the board was started again"


def test_a_second_board_of_the_same_name_is_refused(farm: Farm) -> None:
    with pytest.raises(FarmError, match="another --name"):
        farm.board(secret="other")
    farm.wait(10, beating=False)
    farm.board(secret="other")


def test_a_board_that_says_goodbye_is_offline_at_once(farm: Farm) -> None:
    farm.ask("a")
    farm.send(BoardGone(board="b0", secret="s", left=True))
    assert farm.stands() == "offline"
    assert not farm.state.leases
    assert farm.state.boards["b0"].faults == 0


def fail(farm: Farm, times: int) -> None:
    for _ in range(times):
        farm.ask("a")
        farm.release("a", fault="run: it went away")


def test_repeated_faults_lead_to_quarantine_and_probation(farm: Farm) -> None:
    fail(farm, 3)
    assert farm.stands() == "quarantined"
    farm.wait(59)
    assert farm.stands() == "quarantined"
    farm.wait(2)
    assert farm.stands() == "probation"


def test_a_fault_in_probation_is_twice_the_quarantine(farm: Farm) -> None:
    fail(farm, 3)
    farm.wait(61)
    fail(farm, 1)
    farm.wait(119)
    assert farm.stands() == "quarantined"
    farm.wait(2)
    assert farm.stands() == "probation"


def test_a_good_lease_ends_probation(farm: Farm) -> None:
    fail(farm, 3)
    farm.wait(61)
    farm.ask("a")
    farm.release("a", results=1)
    fail(farm, 2)
    assert farm.stands() == "idle"


def test_a_lease_without_results_proves_nothing(farm: Farm) -> None:
    fail(farm, 2)
    farm.ask("a")
    farm.release("a", results=0)
    fail(farm, 1)
    assert farm.stands() == "quarantined"


def test_a_sound_board_is_preferred_to_one_in_probation(farm: Farm) -> None:
    fail(farm, 3)
    farm.wait(61)
    farm.board("b1")
    farm.ask("a")
    assert farm.lease("a").board == "b1"


def test_a_quarantined_board_is_reset_if_it_can_be() -> None:
    farm = Farm()
    farm.board(resettable=True, resets=0)
    fail(farm, 3)
    assert farm.state.orders("b0", farm.now_s).reset
    farm.board(resettable=True, resets=0)
    assert farm.state.orders("b0", farm.now_s).reset
    farm.board(resettable=True, resets=1)
    assert not farm.state.orders("b0", farm.now_s).reset


def test_a_drained_board_ends_its_lease_and_gets_no_other(farm: Farm) -> None:
    farm.ask("a")
    farm.send(Commanded(board="b0", command="drain"))
    assert farm.stands() == "draining"
    assert farm.lease("a").recalled_s is not None
    farm.release("a")
    farm.ask("b")
    assert farm.stands() == "drained"
    assert not farm.state.leases


def test_quarantine_by_hand_lasts_until_release(farm: Farm) -> None:
    farm.ask("a")
    farm.send(Commanded(board="b0", command="quarantine"))
    assert not farm.state.leases
    farm.wait(5000)
    assert farm.stands() == "quarantined"
    farm.send(Commanded(board="b0", command="release"))
    assert farm.stands() == "idle"


def test_release_ends_a_lease_by_force(farm: Farm) -> None:
    farm.ask("a")
    farm.ask("b")
    farm.send(Commanded(board="b0", command="release"))
    assert farm.lease("b")
    assert not farm.state.leases_of("a")


def test_decisions_about_boards_that_are_not_there_are_refused(farm: Farm) -> None:
    with pytest.raises(FarmError, match="there are: b0"):
        farm.send(Commanded(board="b7", command="drain"))


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
