"""Latencies of whole models: kept in order, told apart by the model's kernels, sent along."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest

from autotune.db.exchange import import_items, log_items
from autotune.db.items import header, line_items, to_line
from autotune.db.latencies import keep, kept, model_key, on_boards
from autotune.db.store import TuningLog
from autotune.db.types import Latency
from autotune.errors import LogError
from autotune.frontend import load_model
from tests.unit.db.samples import record, target

MEASURED = Latency(
    model_key="0123456789abcdef",
    model=record().model,
    target_key=target().key,
    device=record().result.device,
    before=(3e-3, 2e-3, 9e-3),
    after=(1e-3, 4e-3, 1.5e-3),
    kernels_before_s=2.9e-3,
    kernels_after_s=None,
    created="2026-03-01T10:00:00+00:00",
)


def found(log: TuningLog) -> list[Latency]:
    return kept(log, MEASURED.model_key, MEASURED.target_key)


def test_a_latency_is_the_median_of_its_runs() -> None:
    assert (MEASURED.before_s, MEASURED.after_s) == (3e-3, 1.5e-3)


def test_the_log_keeps_them_in_order(tmp_path: Path) -> None:
    later = dataclasses.replace(MEASURED, after=(1e-4,), kernels_after_s=2e-4)
    with TuningLog(tmp_path / "log.db") as log:
        for latency in (MEASURED, later, dataclasses.replace(MEASURED, model_key="another")):
            keep(log, latency)
        assert found(log) == [MEASURED, later]


def test_a_log_that_is_not_there_has_none(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db", read_only=True, missing_ok=True) as log:
        assert found(log) == []


def test_models_are_told_apart_by_what_they_compute_not_by_name() -> None:
    tiny, other = load_model("zoo:tiny"), load_model("zoo:squeezenet")
    renamed = dataclasses.replace(tiny, name="main_graph")
    assert model_key(renamed) == model_key(tiny) != model_key(other)


def exported(path: Path) -> str:
    with TuningLog(path) as log:
        keep(log, MEASURED)
        log.append([record()])
        return "".join(map(to_line, [header("2026-03-01T00:00:00+00:00"), *log_items(log)]))


def add(log: TuningLog, text: str) -> None:
    import_items(log, line_items(io.StringIO(text), "x"), "x")


def test_they_go_with_the_records_of_their_model_and_say_where_they_are_from(
    tmp_path: Path,
) -> None:
    text = exported(tmp_path / "here.db")
    with TuningLog(tmp_path / "there.db") as log:
        for _ in range(2):
            add(log, text)
        assert found(log) == [dataclasses.replace(MEASURED, origin="x")]


def test_runs_on_boards_are_apart_and_go_along_too(tmp_path: Path) -> None:
    board = dataclasses.replace(MEASURED, before=(), kernels_before_s=None)
    with TuningLog(tmp_path / "here.db") as log:
        keep(log, board)
        log.append([record()])
        lines = [header("2026-03-01T00:00:00+00:00"), *log_items(log)]
        assert found(log) == []
        assert on_boards(log, MEASURED.model_key, "") == on_boards(log, "", MEASURED.model)
    with TuningLog(tmp_path / "there.db") as log:
        add(log, "".join(map(to_line, lines)))
        assert on_boards(log, "", MEASURED.model) == [dataclasses.replace(board, origin="x")]


@pytest.mark.parametrize(
    ("name", "value"),
    [("after_s", []), ("before_s", [0.0]), ("kernels_before_s", -1.0), ("created", "soon")],
)
def test_an_item_that_cannot_be_one_is_named(tmp_path: Path, name: str, value: object) -> None:
    lines = exported(tmp_path / "here.db").splitlines()
    place = next(n for n, line in enumerate(lines) if '"kind":"latency"' in line)
    lines[place] = json.dumps({**json.loads(lines[place]), name: value})
    with (
        TuningLog(tmp_path / "there.db") as log,
        pytest.raises(LogError, match=f"line {place + 1}"),
    ):
        add(log, "\n".join(lines))
