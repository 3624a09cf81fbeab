"""When a board loses its lease, and when it is taken out of service."""

from __future__ import annotations

import pytest

from rpc_server.tracker.ledger import LAST_BELIEVED
from rpc_server.tracker.types import BoardGone, Commanded, FarmError, LeaseEnded, Released
from tests.unit.rpc_server.paper_farm import RULES, Farm


@pytest.fixture
def farm() -> Farm:
    farm = Farm()
    farm.board()
    return farm


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


@pytest.mark.parametrize("said", ["b1/vm-0", "b1", "vm-0", "b1/vm", "b1/"])
def test_a_board_may_be_named_by_a_part_that_only_it_has(farm: Farm, said: str) -> None:
    farm.board(name="b1/vm-0")
    farm.send(Commanded(board=said, command="drain"))
    assert farm.stands("b1/vm-0") == "drained"
    assert farm.stands() == "idle"


@pytest.mark.parametrize(
    ("said", "listed"), [("b1", "b1/vm-0, b1/vm-1"), ("b", "b0, b1/vm-0, b1/vm-1")]
)
def test_a_part_that_several_boards_have_lists_them(farm: Farm, said: str, listed: str) -> None:
    for name in ("b1/vm-0", "b1/vm-1"):
        farm.board(name=name)
    with pytest.raises(FarmError, match=f"boards could be {said}: {listed}; give the whole name"):
        farm.send(Commanded(board=said, command="drain"))
    with pytest.raises(FarmError, match="no board named x; there are: b0, b1/vm-0, b1/vm-1"):
        farm.send(Commanded(board="x", command="drain"))


def test_a_name_counts_before_its_parts(farm: Farm) -> None:
    farm.board(name="b0/vm-0")
    farm.send(Commanded(board="b0", command="drain"))
    assert (farm.stands(), farm.stands("b0/vm-0")) == ("drained", "idle")


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


@pytest.mark.parametrize("floor", [(1 << 16) + 1, (1 << 53) - 1, (1 << 63) - 1])
def test_a_fence_far_ahead_is_not_believed(farm: Farm, floor: int) -> None:
    farm.board("rogue", secret="r", floor=floor)
    assert farm.state.boards["rogue"].last_error.startswith(
        f"it says that it served lease {floor}"
    )
    farm.ask("a")
    assert farm.lease("a").fence == 1


def test_fences_near_one_another_end_before_they_leave_no_room(farm: Farm) -> None:
    farm.state.fence = LAST_BELIEVED - 1
    farm.board("rogue", secret="r", floor=LAST_BELIEVED + 1)
    assert farm.state.fence == LAST_BELIEVED - 1
    farm.ask("a")
    farm.ask("b")
    assert farm.lease("b").fence == LAST_BELIEVED + 1


def test_a_registration_that_is_refused_changes_nothing(farm: Farm) -> None:
    with pytest.raises(FarmError, match="another --name"):
        farm.board(secret="other", floor=40)
    assert farm.state.fence == 0


def test_a_board_that_goes_on_giving_what_no_machine_gives_is_quarantined(farm: Farm) -> None:
    """However well it behaves in between."""
    for _ in range(RULES.fault_limit):
        farm.ask("a")
        farm.release("a", results=5)
        farm.ask("a")
        fence = farm.lease("a").fence
        farm.send(Released(client="a", fence=fence, fault="run: 1e-09 s", unsound=True))
    assert farm.stands() == "quarantined"
    assert farm.state.boards["b0"].last_error == "run: 1e-09 s"
    farm.send(Commanded(board="b0", command="release"))
    farm.ask("a")
    farm.release("a", fault="lost")
    assert farm.stands() == "idle"
