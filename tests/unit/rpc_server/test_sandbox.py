"""Crashing candidates on a whole board: it serves on as before."""

from __future__ import annotations

import pytest

from autotune.measure.types import Status
from benchmarks.farm import crashing_candidates as crashes
from rpc_server.client.board_runner import RpcRunner
from tests.unit.rpc_server.boards import BoardProcess


@pytest.mark.slow
def test_a_board_is_the_same_after_many_crashes() -> None:
    options = ("--memory-mib", str(crashes.MEMORY_MIB))
    with (
        BoardProcess(executor=crashes.EXECUTOR, options=options) as board,
        RpcRunner(board.url) as runner,
    ):
        assert any(line.startswith("sandbox limits") for line in board.greeting)
        crashes.crash(runner, len(crashes.BEHAVIOURS))
        crashes.settle(runner)
        before = crashes.usage(board.pid)
        seen = crashes.crash(runner, 2 * len(crashes.BEHAVIOURS))
        assert not [line for line in seen if line.split()[1] == "OK"]
        (last,) = crashes.settle(runner)
        assert last.status is Status.OK
        assert crashes.problems(before, crashes.usage(board.pid)) == []
