"""What `tune` says at its end."""

from __future__ import annotations

import dataclasses

from autotune.cli.tune import gained
from autotune.tuner.report import TuneReport
from tests.unit.report.samples import latency

REPORT = TuneReport(
    before_s=11e-3, after_s=8.5e-3, trials=40, measured=40, elapsed_s=9.0, reason="", tasks=()
)


def test_latencies_are_told_apart_from_sums() -> None:
    told = gained(dataclasses.replace(REPORT, latency=latency()))
    assert told == "latency 11.1 ms -> 8.60 ms measured; kernels' sum 11.0 ms -> 8.50 ms"


def test_without_them_there_is_the_reason() -> None:
    told = gained(dataclasses.replace(REPORT, after_s=None, no_latency="boards run kernels"))
    assert told == "kernels' sum 11.0 ms -> -; the whole model was not run: boards run kernels"
