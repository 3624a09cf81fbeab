"""Models are tuned from PyTorch, and compiled from the log of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autotune.torch
from autotune import arguments
from autotune.db.selection import Selection
from autotune.db.store import TuningLog
from autotune.errors import ConfigError, InputError
from autotune.torch.options import CompileOptions


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 8)).eval()


def records(log: Path) -> int:
    with TuningLog(log, read_only=True) as store:
        return len(store.query(Selection()))


@pytest.mark.slow
def test_a_model_is_tuned_and_then_compiled_from_the_log(tmp_path: Path, measured: Path) -> None:
    log, x = tmp_path / "tuned.db", torch.randn(4, 16)
    report = autotune.torch.tune(
        network(32), (x,), log=log, trials=4, threads=1, cache_dir=measured
    )
    assert report is not None
    assert report.measured == 4
    before, model = records(log), network(32)
    options: dict[str, Any] = {"log": log, "tune": "30s", "min_gain": 0, "threads": 1}
    options["cache_dir"] = measured
    with torch.no_grad():
        torch._dynamo.reset()
        found = torch.compile(model, backend="autotune", options=options)(x)
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    assert records(log) == before  # the log knew all of it: nothing was tuned


def test_what_is_compiled_in_a_block_is_tuned_at_its_end(tmp_path: Path, measured: Path) -> None:
    log, x = tmp_path / "tuned.db", torch.randn(4, 16)
    with (
        autotune.torch.Tuning(log=log, trials=4, threads=1, cache_dir=measured) as tuning,
        torch.no_grad(),
    ):
        for width in (32, 48):
            torch.compile(network(width), backend=tuning.backend)(x)
        assert not log.exists()
    assert tuning.report is not None
    assert len(tuning.report.tasks) == 4
    assert records(log) > 0


def test_an_option_tunes_a_graph_that_the_log_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("autotune.tuner.api.tune", lambda **given: asked.append(given))
    options: dict[str, Any] = {"tune": "30s", "min_gain": 0, "threads": 1, "cache_dir": tmp_path}
    options |= {"target": "x86-64-v3", "machine": "nominal"}
    with torch.no_grad():
        torch.compile(network(32), backend="autotune", options=options)(torch.randn(4, 16))
    (given,) = asked
    assert given["time_s"] == 30
    assert given["log"] == tmp_path / "torch.db"


@pytest.mark.parametrize(
    ("text", "found"), [("30s", 30.0), ("2m", 120.0), ("1h30m", 5400.0), (1.5, 1.5)]
)
def test_times_are_numbers_or_texts(text: str | float, found: float) -> None:
    assert arguments.duration("tune", text) == found


@pytest.mark.parametrize("given", ["soon", "", "0s", -1, None])
def test_what_is_no_time_is_told(given: Any) -> None:
    with pytest.raises(InputError, match="time"):
        arguments.duration("time", given)


def test_options_that_are_the_backend_s_are_told() -> None:
    with pytest.raises(ConfigError, match="options of the backend"):
        autotune.torch.Tuning(log="x.db", tune="30s")


def test_reproducible_is_not_promised_where_pytorch_runs_parts() -> None:
    with pytest.raises(ConfigError, match="accuracy reproducible is not for backend 'autotune'"):
        CompileOptions.of({"accuracy": "reproducible"})


def test_small_graphs_are_left_to_pytorch() -> None:
    a, b = torch.randn(2, 4)
    told = autotune.torch.explain(lambda which: torch.where(which, a, b), a > 0)
    assert (told.graphs[0].ours, told.graphs[0].quicker, told.whole) == (0, 1, True)
    told = autotune.torch.explain(network(256), torch.randn(64, 16))
    assert told.graphs[0].quicker == 0
