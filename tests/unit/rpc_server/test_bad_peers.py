"""Hostile peers, briefly: none gets a job run, none keeps others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bad_peers


@pytest.mark.slow
def test_bad_peers_get_nothing_and_stall_nobody(tmp_path: Path) -> None:
    done, honest, ran, memory = bad_peers.run(tmp_path, 3 * len(bad_peers.ATTACKS), 150)
    assert set(done) == {a.__name__ for a in bad_peers.ATTACKS} | {"half_open"}
    assert ran == []
    assert honest.errors == []
    assert honest.calls > bad_peers.CALM_CALLS + 5
    assert honest.worst_s < bad_peers.MAX_WAIT_S + honest.calm_s
    assert memory < bad_peers.MAX_MEMORY_KIB
