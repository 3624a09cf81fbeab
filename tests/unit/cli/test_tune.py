"""What `tune` says at its end."""

from __future__ import annotations

import dataclasses
import importlib
import logging

import pytest

from autotune.cli.tune import gained
from autotune.cli.warned import quiet_cluster
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


def test_only_a_clusters_own_libraries_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("distributed")  # it sets levels of its own
    loggers = [logging.getLogger(n) for n in ("distributed.client", "distributed", "autotune.log")]
    levels = [logger.level for logger in loggers]
    with quiet_cluster("dask://127.0.0.1:1"):
        assert [logger.isEnabledFor(logging.ERROR) for logger in loggers] == [False, False, True]
    assert [logger.level for logger in loggers] == levels
    with quiet_cluster("local"):
        assert [logger.level for logger in loggers] == levels
    assert capfd.readouterr().err == ""
