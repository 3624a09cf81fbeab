"""The tracker's decisions under any sequence of events: what is kept whatever happens."""

from __future__ import annotations

import copy
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from autotune.parse_int import LARGEST
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import (
    Action,
    Asked,
    Beat,
    BoardGone,
    Commanded,
    Ended,
    Event,
    FarmError,
    FarmRules,
    Granted,
    LeaseEnded,
    Registered,
    Released,
    Renewed,
    Request,
    Restarted,
    Tick,
    Withdrawn,
)

RULES = FarmRules(
    lease_s=4.0,
    board_lost_s=4.0,
    slice_s=6.0,
    recall_grace_s=5.0,
    age_s=20.0,
    fault_limit=2,
    quarantine_s=5.0,
    longest_quarantine_s=20.0,
    forget_board_s=60.0,
    max_requests_per_client=5,
)
BOARDS = ("b0", "b1", "b2")
KEYS = {"b0": "k0", "b1": "k0", "b2": "k1"}
CLIENTS = ("c0", "c1", "c2")


class Farm(RuleBasedStateMachine):
    """Boards and clients that do anything, on time or not."""

    fences = Bundle("fences")

    @initialize()
    def start(self) -> None:
        self.now_s = 1000.0
        self.state = FarmState(RULES)
        self.store = StateStore(None)
        self.secrets = dict.fromkeys(BOARDS, 0)
        self.count = 0
        self.accepted: set[tuple[str, str]] = set()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.granted: set[int] = set()
        self.over: Counter[int] = Counter()
        for name in BOARDS:
            self.register(name, False)

    def teardown(self) -> None:
        """Everybody dies: after a while nothing is left."""
        if not hasattr(self, "store"):
            return
        self.everybody_behaves()
        for _ in range(10):
            self.now_s += RULES.forget_board_s / 4
            self.send(Tick())
        self.store.close()
        assert not self.state.boards
        assert not self.state.leases
        assert not self.state.requests
        assert self.accepted == self.ended.keys()

    def everybody_behaves(self) -> None:
        """Boards beat, clients renew and give back: nobody who waits waits for ever."""
        for name in BOARDS:
            self.register(name, True)
            self.send(Commanded(board=name, command="release"))
        waiting = set(self.state.requests)
        for _ in range(2 * len(waiting) + 2):
            self.now_s += 1.0
            for name in BOARDS:
                self.beat(name)
            for client in CLIENTS:
                for lease in self.state.leases_of(client):
                    self.send(Released(client=client, fence=lease.fence, results=1))
                self.send(Renewed(client=client))
        assert not waiting & self.state.requests.keys()

    def send(self, event: Event) -> tuple[Action, ...]:
        waiting = copy.copy(self.state.requests)
        try:
            actions = self.state.apply(self.now_s, event)
        except FarmError:
            actions = ()
        else:
            self.store.save(self.state)
        if isinstance(event, Asked) and (event.client, event.request) not in waiting:
            place = (event.client, event.request)
            if place in self.state.requests or any(
                isinstance(a, Granted) and a.request == event.request for a in actions
            ):
                self.accepted.add(place)
        for action in actions:
            if isinstance(action, Granted):
                self.nobody_more_urgent(waiting.get((action.client, action.request)))
                self.ended[action.client, action.request] += 1
                assert action.fence not in self.granted
                assert action.fence > max(self.granted, default=0)
                self.granted.add(action.fence)
            elif isinstance(action, Ended):
                self.ended[action.client, action.request] += 1
            elif isinstance(action, LeaseEnded):
                self.over[action.fence] += 1
        return actions

    def nobody_more_urgent(self, granted: Request | None) -> None:
        """Priorities hold: who waits on is of no higher level than who was served."""
        if granted is None:  # served at once, so nobody was waiting
            return
        level = self.state.level(granted, self.now_s)
        for request in self.state.requests.values():
            if request.key == granted.key:
                assert self.state.level(request, self.now_s) <= level

    # ------------------------------------------------------------------------------- what happens

    @rule(
        name=st.sampled_from(BOARDS),
        again=st.booleans(),
        floor=st.sampled_from((0, 1, 40, 1 << 16, 1 << 17, (1 << 53) - 1, LARGEST)),
    )
    def register(self, name: str, again: bool, floor: int = 0) -> None:
        self.secrets[name] += again
        secret = f"{name}-{self.secrets[name]}"
        info = {"floor": floor}
        self.send(Registered(board=name, key=KEYS[name], address="a", secret=secret, info=info))

    @rule(name=st.sampled_from(BOARDS))
    def beat(self, name: str) -> None:
        self.send(Beat(board=name, secret=f"{name}-{self.secrets[name]}"))

    @rule(name=st.sampled_from(BOARDS), left=st.booleans())
    def board_gone(self, name: str, left: bool) -> None:
        self.send(BoardGone(board=name, secret=f"{name}-{self.secrets[name]}", left=left))

    @rule(
        client=st.sampled_from(CLIENTS),
        key=st.sampled_from(("k0", "k1", "k2")),
        priority=st.integers(-1, 1),
        queue_s=st.sampled_from((5.0, 500.0)),
    )
    def ask(self, client: str, key: str, priority: int, queue_s: float) -> None:
        self.count += 1
        event = Asked(
            client=client, request=f"r{self.count}", key=key, priority=priority, queue_s=queue_s
        )
        self.send(event)
        self.send(event)

    @rule(client=st.sampled_from(CLIENTS))
    def withdraw(self, client: str) -> None:
        for request in self.state.requests_of(client)[:1]:
            self.send(Withdrawn(client=client, request=request.name))

    @rule(target=fences, client=st.sampled_from(CLIENTS))
    def renew(self, client: str) -> object:
        fences = tuple(lease.fence for lease in self.state.leases_of(client))
        self.send(Renewed(client=client, fences=fences))
        return multiple(*((client, fence) for fence in fences))

    @rule(
        lease=consumes(fences),
        results=st.integers(0, 2),
        fault=st.sampled_from(("", "lost")),
        unsound=st.booleans(),
    )
    def release(self, lease: tuple[str, int], results: int, fault: str, unsound: bool) -> None:
        """Also of leases that are over."""
        client, fence = lease
        held = self.state.leases.get(fence)
        event = Released(client=client, fence=fence, results=results, fault=fault, unsound=unsound)
        self.send(event)
        assert fence not in self.state.leases
        if held is not None and fault and unsound:
            board = self.state.boards[held.board]
            assert board.quarantined_until_s is not None or board.unsound < RULES.fault_limit

    @rule(
        board=st.sampled_from((*BOARDS, "b9")),
        command=st.sampled_from(("release", "quarantine", "drain", "dance")),
    )
    def command(self, board: str, command: str) -> None:
        self.send(Commanded(board=board, command=command))

    @rule(elapsed_s=st.sampled_from((0.5, 1.5, 3.0, 7.0)))
    def tick(self, elapsed_s: float) -> None:
        self.now_s += elapsed_s
        self.send(Tick())
        for lease in self.state.leases.values():
            assert lease.until_s >= self.now_s
            board = self.state.boards[lease.board]
            assert self.now_s - board.seen_s <= RULES.board_lost_s

    @rule()
    def restart(self) -> None:
        """The tracker is killed and reads what it had written."""
        before = self.state
        self.state = FarmState(RULES)
        self.store.load(self.state)
        assert self.state.leases.keys() == before.leases.keys()
        assert self.state.requests == before.requests
        assert self.state.boards.keys() == before.boards.keys()
        assert self.state.fence == before.fence
        self.send(Restarted())

    # ------------------------------------------------------------------------- what always holds

    @invariant()
    def a_board_has_at_most_one_lease(self) -> None:
        boards = [lease.board for lease in self.state.leases.values()]
        assert len(boards) == len(set(boards))
        for board in self.state.boards.values():
            if board.lease is not None:
                assert self.state.leases[board.lease].board == board.name
        assert all(self.state.boards[x.board].lease == f for f, x in self.state.leases.items())

    @invariant()
    def a_lease_ends_once(self) -> None:
        assert all(count == 1 for count in self.over.values())
        assert self.granted == self.over.keys() | self.state.leases.keys()

    @invariant()
    def fences_are_those_of_grants(self) -> None:
        """However far ahead a board says it is: a fence is near what was granted or believed."""
        events = len(self.granted) + sum(self.secrets.values()) + 3 * (self.count + 100)
        assert self.state.fence <= events << 17

    @invariant()
    def a_request_waits_or_has_ended_once(self) -> None:
        assert all(count == 1 for count in self.ended.values())
        assert self.accepted == self.ended.keys() | self.state.requests.keys()

    @invariant()
    def no_board_is_idle_while_somebody_waits_for_it(self) -> None:
        """So an expired or broken lease is granted again at once."""
        waiting = {request.key for request in self.state.requests.values()}
        for board in self.state.boards.values():
            if self.state.state_of(board, self.now_s) in ("idle", "probation"):
                assert board.key not in waiting

    @invariant()
    def nothing_is_kept_of_clients_that_want_nothing(self) -> None:
        wanting = {x.client for x in self.state.requests.values()}
        wanting |= {x.client for x in self.state.leases.values()}
        assert self.state.clients() == wanting
        for client in CLIENTS:
            assert self.state.waiting_of(client) == len(self.state.requests_of(client))


TestFarm = Farm.TestCase
TestFarm.settings = settings(
    max_examples=120,
    stateful_step_count=50,
)
