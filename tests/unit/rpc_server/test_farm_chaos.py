"""The farm's promises while it is broken on purpose for a minute: see benchmarks/farm_chaos.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.rpc_server.farms import ROOT


@pytest.mark.slow
def test_a_minute_of_chaos_loses_and_doubles_nothing() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/farm_chaos.py"), "--time", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every request ended once, no record lost or doubled" in done.stdout
