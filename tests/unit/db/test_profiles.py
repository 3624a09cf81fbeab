"""What devices say of themselves: the latest is kept, and goes with their records."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from sqlalchemy import func, select

from autotune.db.exchange import import_items, log_items
from autotune.db.items import header, line_items, to_line
from autotune.db.profiles import keep_profile, kept_profiles
from autotune.db.schema import PROFILES
from autotune.db.store import TuningLog
from autotune.errors import LogError
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.types import MeasureResult
from tests.unit.db.samples import record, target
from tests.unit.machine.samples import FACTS

BOARD = DeviceProfile(
    device="board",
    target=target(),
    peak_flops=1e11,
    levels=(CacheLevel(name="memory", size_bytes=0, load_bytes_per_s=1e10),),
    parallel_region_s=0.0,
)
KEY = (BOARD.device, BOARD.target.key)


def on_board() -> MeasureResult:
    return dataclasses.replace(record().result, device="board")


def count(log: TuningLog) -> int:
    with log.reading() as connection:
        assert connection is not None
        return int(connection.execute(select(func.count()).select_from(PROFILES)).scalar_one())


def test_the_latest_profile_of_a_device_counts(tmp_path: Path) -> None:
    faster = dataclasses.replace(BOARD, peak_flops=2e11)
    with TuningLog(tmp_path / "log.db") as log:
        for profile in (BOARD, faster):
            keep_profile(log, profile)
        assert kept_profiles(log) == {KEY: faster}


def test_an_unchanged_profile_is_kept_once(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db") as log:
        for _ in range(3):
            keep_profile(log, BOARD)
        assert count(log) == 1


def test_a_log_that_is_not_there_knows_no_device(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "log.db", read_only=True, missing_ok=True) as log:
        assert kept_profiles(log) == {}


def exported(path: Path) -> str:
    with TuningLog(path) as log:
        keep_profile(log, BOARD)
        log.append([dataclasses.replace(record(), result=on_board())])
        return "".join(map(to_line, [header("2026-03-01T00:00:00+00:00"), *log_items(log)]))


def add(log: TuningLog, text: str) -> None:
    import_items(log, line_items(io.StringIO(text), "x"), "x")


def test_profiles_go_with_the_records_of_their_device(tmp_path: Path) -> None:
    text = exported(tmp_path / "here.db")
    with TuningLog(tmp_path / "there.db") as log:
        add(log, text)
        add(log, text)
        assert kept_profiles(log) == {KEY: BOARD}
        assert count(log) == 1


def test_what_micro_benchmarks_found_is_kept_with_the_profile(tmp_path: Path) -> None:
    known = dataclasses.replace(BOARD, facts=FACTS)
    with TuningLog(tmp_path / "log.db") as log:
        for profile in (BOARD, known, known):
            keep_profile(log, profile)
        assert kept_profiles(log) == {KEY: known}
        assert count(log) == 2
        log.append([dataclasses.replace(record(), result=on_board())])
        text = "".join(map(to_line, [header("2026-03-01T00:00:00+00:00"), *log_items(log)]))
    with TuningLog(tmp_path / "there.db") as log:
        add(log, text)
        assert kept_profiles(log) == {KEY: known}


def test_a_profile_under_another_name_is_refused(tmp_path: Path) -> None:
    lines = exported(tmp_path / "here.db").splitlines()
    place = next(n for n, line in enumerate(lines) if '"profile"' in line)
    lines[place] = json.dumps({**json.loads(lines[place]), "device": "another"})
    with (
        TuningLog(tmp_path / "there.db") as log,
        pytest.raises(LogError, match="filed under 'another'"),
    ):
        add(log, "\n".join(lines))
