"""Hostile peers, briefly: none gets a job run or a lease, none keeps others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bad_peers
from benchmarks.bad_attacks import ATTACKS, BOARD, TRACKER, Service


@pytest.mark.slow
@pytest.mark.parametrize("service", [BOARD, TRACKER], ids=lambda s: s.name)
def test_bad_peers_get_nothing_and_stall_nobody(service: Service, tmp_path: Path) -> None:
    outcome = bad_peers.run(tmp_path, service, 3 * len(ATTACKS), 150)
    assert set(outcome.done) == {a.__name__ for a in ATTACKS} | {"half_open"}
    assert outcome.honest.calls > bad_peers.CALM_CALLS
    assert outcome.failures() == []
