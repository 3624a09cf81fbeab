"""Boards measure under the control word that models run under."""

from __future__ import annotations

import pytest

from autotune.codegen.float_control import architecture
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.types import Status
from autotune.target import host_target
from rpc_server.client.board_runner import RpcRunner
from tests.unit.measure import denormals
from tests.unit.rpc_server.boards import BoardProcess


@pytest.mark.slow
def test_a_board_flushes_denormal_numbers_unless_strict() -> None:
    target = host_target(2)
    asked = [denormals.request(target.with_accuracy(a)) for a in ("normal", "strict")]
    with BoardProcess(executor=DEFAULT_EXECUTOR) as board, RpcRunner(board.url) as runner:
        found = runner.measure(tuple(asked))
    flushed = Status.WRONG_RESULT if architecture(target) else Status.OK
    assert [r.status for r in found] == [flushed, Status.OK]
