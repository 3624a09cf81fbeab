"""The farm's promises while it is broken on purpose: see benchmarks/farm/farm_chaos.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.rpc_server.farms import ROOT


@pytest.mark.slow
def test_thirty_breakages_lose_and_double_nothing() -> None:
    script = str(ROOT / "benchmarks/farm/farm_chaos.py")
    command = [sys.executable, script, "--time", "30", "--pause", "0.9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every request ended once, no record lost or doubled" in done.stdout
