"""`autotune tune` over a farm: both boards of a key work, and every trial is logged once."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.db.store import TuningLog
from tests.unit.rpc_server.farms import running_farm
from tests.unit.rpc_server.fixed import FIXED

TRIALS = 24


def test_a_tuner_uses_all_leased_boards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "tuning.db"
    with running_farm(tmp_path, boards=2, executor=FIXED) as farm:
        status = execute(
            ["tune", "zoo:tiny", "--device", farm.url, "--boards", "2", "--strategy", "random",
             "--trials", str(TRIALS), "--log", str(log)]
        )  # fmt: skip
        done = [b["stats"]["trials"] for b in farm.status()["boards"]]
        farm.in_service()
    assert status == 0
    assert f"{TRIALS}/{TRIALS} trials, 0 failed" in capsys.readouterr().out
    with TuningLog(log, read_only=True) as opened:
        assert len(opened.query(top=TRIALS)) == TRIALS
    assert all(done), f"trials by board: {done}"
