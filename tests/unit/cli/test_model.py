"""`autotune model train` and `autotune report`, on records of imagined measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.db.store import TuningLog
from autotune.target import host_target
from cost_model.pretrained import Pretrained
from tests.unit.report.samples import filled, tiny


@pytest.fixture(autouse=True)
def _cache(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.db"
    with TuningLog(path) as store:
        store.append(filled(tiny(), target=host_target()).kept)
    return str(path)


def test_a_trained_model_says_how_well_it_ranks(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cost.json"
    assert execute(["model", "train", "--log", log, "--log", log, "-o", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["rule", "left"]
    assert any(line.startswith("contraction  tasks") for line in lines)
    assert len(Pretrained.load(file)) >= 1


def test_a_password_is_neither_shown_nor_kept(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{log}?password=secret"
    Path(log).rename(f"{log}?password=secret")
    cost, page = tmp_path / "cost.json", tmp_path / "report.html"
    for command in (
        ["model", "train", "-o", str(cost)],
        ["report", "zoo:tiny", "-o", str(page)],
        ["tune", "zoo:tiny", "--dry-run"],
        ["tune", "zoo:tiny", "--trials", "1"],
    ):
        assert execute([*command, "--log", url]) == 0
    said = capsys.readouterr()
    for text in (said.out, said.err, cost.read_text(), page.read_text(encoding="utf-8")):
        assert "secret" not in text
    assert "password=***" in said.out


def test_an_empty_log_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "empty.db")
    with TuningLog(path) as store:
        store.claim()
    assert execute(["model", "train", "--log", path, "-o", str(tmp_path / "cost.json")]) == 2
    assert "too little to learn from" in capsys.readouterr().err


def test_a_missing_cost_model_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "log.db")
    missing = str(tmp_path / "none.json")
    assert execute(["tune", "zoo:tiny", "--log", log, "--model", missing, "--trials", "1"]) == 2
    assert "cannot read cost model" in capsys.readouterr().err


def test_the_report_is_one_file(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert execute(["report", "zoo:tiny", "--log", log, "-o", str(page)]) == 0
    assert "9 of 9 tasks have records" in capsys.readouterr().out
    assert "Roofline" in page.read_text(encoding="utf-8")


def test_a_report_is_of_one_precision_and_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = str(tmp_path / "log.db"), str(tmp_path / "report.html")
    on = host_target().with_precision("bf16").with_accuracy("strict")
    with TuningLog(path) as store:
        store.append(filled(tiny(), 8, on).kept)
    options = ["report", "zoo:tiny", "--log", path, "-o", page, "--precision", "bf16"]
    assert execute([*options, "--accuracy", "strict"]) == 0
    assert "9 of 9 tasks have records" in capsys.readouterr().out
    assert execute(options) == 0
    assert "0 of 9 tasks have records" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_one_line(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "no" / "report.html")
    assert execute(["report", "zoo:tiny", "--log", log, "-o", page]) == 2
    assert "cannot write" in capsys.readouterr().err
