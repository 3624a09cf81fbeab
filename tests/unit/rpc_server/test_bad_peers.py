"""Hostile peers, briefly: none gets a job run or a lease, none keeps others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.farm import bad_peers
from benchmarks.farm.bad_attacks import ATTACKS, BOARD, TRACKER, Service
from benchmarks.farm.bad_objects import hostile_objects, replays


@pytest.mark.slow
@pytest.mark.parametrize("service", [BOARD, TRACKER], ids=lambda s: s.name)
def test_bad_peers_get_nothing_and_stall_nobody(service: Service, tmp_path: Path) -> None:
    outcome = bad_peers.run(tmp_path, service, 3 * len(ATTACKS), 150)
    others = {"half_open", "slow_frame"} | ({"far_fence"} if service is TRACKER else set())
    assert set(outcome.done) == {a.__name__ for a in ATTACKS} | others
    assert outcome.honest.calls > bad_peers.CALM_CALLS
    assert outcome.failures() == []


@pytest.mark.slow
def test_hostile_objects_find_nothing_on_a_board(tmp_path: Path) -> None:
    assert hostile_objects(tmp_path, 1).got == ()


@pytest.mark.slow
def test_replayed_sessions_are_granted_nothing(tmp_path: Path) -> None:
    assert replays(tmp_path, 5).got == ()
