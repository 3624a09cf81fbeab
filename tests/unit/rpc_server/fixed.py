"""An executor whose candidates take a fixed time, so that two boards are two boards on any host.

In: requests. Out: results after `trial_s`. Imported by worker processes.
"""

from __future__ import annotations

import time

from autotune.measure.types import Built, MeasureRequest, MeasureResult, Status
from tests.unit.measure.fakes import FakeExecutor

FIXED = "tests.unit.rpc_server.fixed:FixedExecutor"
LONGER = "tests.unit.rpc_server.fixed:LongerExecutor"


class FixedExecutor(FakeExecutor):
    """Every candidate is good; its reported time tells schedules apart, deterministically."""

    trial_s = 0.1

    def build(self, request: MeasureRequest) -> Built:  # noqa: ARG002 (nothing is built)
        return Built(symbol="kernel", code=b"\0code", workspace_bytes=0)

    def prepare(self, request: MeasureRequest) -> None:  # noqa: ARG002
        return None

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:  # noqa: ARG002
        time.sleep(self.trial_s)
        time_s = 1e-6 * (1 + sum(repr(request.schedule).encode()) % 97)
        return MeasureResult(status=Status.OK, times_s=(time_s,) * 3, run_s=self.trial_s)


class LongerExecutor(FixedExecutor):
    """As long as a real candidate takes."""

    trial_s = 0.25
