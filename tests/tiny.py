"""A tuning log of the tiny model, tuned once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotune
from autotune.tuner.end_to_end import FEW_TRIALS
from autotune.tuner.report import TuneReport

MODEL = "zoo:tiny"
TRIALS = FEW_TRIALS
"""The fewest after which the whole model is run."""
Tuned = tuple[Path, TuneReport]


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """The log's path, and what the run reported."""
    log = tmp_path_factory.mktemp("tiny") / "tuning.db"
    report = autotune.tune(MODEL, log=log, trials=TRIALS, seed=0)
    return log, report
