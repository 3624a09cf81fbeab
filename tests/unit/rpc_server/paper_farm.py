"""A farm on paper: the tracker's state, and time that passes when told to."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpc_server.tracker.state import FarmState
from rpc_server.tracker.types import (
    Action,
    Asked,
    Beat,
    Event,
    FarmRules,
    Lease,
    Registered,
    Released,
    Renewed,
    Tick,
)

RULES = FarmRules(slice_s=30.0, age_s=60.0, quarantine_s=60.0, recall_grace_s=20.0)


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
