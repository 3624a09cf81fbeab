"""Records that go from log to log: nothing is lost, nothing is doubled, everything is marked."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.db.exchange import Imported, import_items, log_items
from autotune.db.items import header, line_items, to_line
from autotune.db.selection import ALL, Selection
from autotune.db.store import TuningLog
from autotune.db.types import Mark, Record
from autotune.errors import LogError
from autotune.measure.types import Status
from tests.unit.db.samples import matmul, record, target

SOME = (
    record(times=(2e-3, 1e-3), tile=2),
    record(times=(3e-3,), tile=4),
    record(status=Status.RUN_CRASH, tile=8),
    record(matmul(m=9), on=target(threads=2)),
)


@pytest.fixture
def log(tmp_path: Path) -> TuningLog:
    log = TuningLog(tmp_path / "here.db")
    log.append(SOME)
    log.close()
    return TuningLog(tmp_path / "here.db")


def exported(log: TuningLog, selection: Selection = ALL) -> str:
    return "".join(map(to_line, [header("2026-03-01T00:00:00+00:00"), *log_items(log, selection)]))


def add(log: TuningLog, text: str, *, trust: bool = False) -> Imported:
    return import_items(log, line_items(io.StringIO(text), "x.jsonl"), "x.jsonl", trust=trust)


def kept(log: TuningLog) -> list[Record]:
    """Every record, imported ones too, as it would be if it had been measured here."""
    from autotune.db.statements import record_rows

    with log.reading() as connection:
        assert connection is not None
        rows = connection.execute(record_rows()).all()
    found = sorted((log.record(row) for row in rows), key=lambda r: r.id or 0)
    return [dataclasses.replace(r, id=None, mark=Mark.OWN, origin="") for r in found]


def test_what_is_exported_is_imported_equal_but_marked(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        assert add(other, exported(log)) == Imported(added=4)
        assert kept(other) == list(SOME)
        assert other.query() == []
        assert other.best(matmul().key, target()) is None
        assert list(other.records(matmul().key, target())) == []
        seeds = other.nearest(matmul(), target(), 9, imported=True)
        assert {(r.mark, r.origin) for r in seeds} == {(Mark.IMPORTED, "x.jsonl")}


def test_trusted_records_count_at_once(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        add(other, exported(log), trust=True)
        best = other.best(matmul().key, target())
        assert best is not None
        assert best.result.median_s == 1.5e-3


def test_trusted_records_that_did_not_count_do_not_here_either(
    log: TuningLog, tmp_path: Path
) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        log.repeat([record(times=(9e-3,), tile=2)])
        log.append([dataclasses.replace(record(times=(1e-6,), tile=16), mark=Mark.IMPORTED)])
        add(other, exported(log), trust=True)
        best = other.best(matmul().key, target())
        assert best is not None
        assert (best.config["tile"], best.result.median_s) == (4, 3e-3)


def test_importing_again_adds_nothing(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        text = exported(log)
        add(other, text)
        assert add(other, text) == Imported(present=4)
        assert add(log, exported(other)) == Imported(present=4)


def test_a_record_twice_in_a_file_is_added_once(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        text = exported(log)
        doubled = text + text.partition("\n")[2]
        assert add(other, doubled) == Imported(added=4, present=4)


def test_the_first_origin_is_kept(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "b.db") as second, TuningLog(tmp_path / "c.db") as third:
        add(second, exported(log))
        items = ((str(n), item) for n, item in enumerate(log_items(second)))
        import_items(third, items, "b.db")
        seeds = third.nearest(matmul(), target(), 9, imported=True)
        assert {r.origin for r in seeds} == {"x.jsonl"}


def test_only_what_is_selected_is_exported(log: TuningLog) -> None:
    with log:
        lines = exported(log, Selection(task_keys=[matmul(m=9).key])).splitlines()
    kinds = [json.loads(line).get("kind") for line in lines]
    assert kinds == [None, "task", "target", "record"]


def test_times_in_another_zone_become_utc(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        text = exported(log).replace("2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05+02:00")
        add(other, text)
        assert kept(other) == list(SOME)


def test_steps_of_another_release_are_left_out_and_counted(log: TuningLog, tmp_path: Path) -> None:
    with log, TuningLog(tmp_path / "there.db") as other:
        text = exported(log).replace('"step":"split"', '"step":"levitate"', 1)
        assert add(other, text) == Imported(added=3, unknown=1)


def changed(log: TuningLog, number: int, **fields: object) -> str:
    lines = exported(log).splitlines()
    item = {**json.loads(lines[number]), **fields}
    lines[number] = json.dumps(item)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("number", "fields", "words"),
    [
        (0, {"version": 4}, "newer release"),
        (0, {"format": "recipe"}, "'autotune-log', got 'recipe'"),
        (1, {"key": "matmul-0"}, "line 2.*key"),
        (1, {"kind": "tusk"}, "line 2.*unknown kind 'tusk'"),
        (3, {"task": "matmul-0"}, "line 4.*misses 'matmul-0'"),
        (3, {"times_s": [0.0]}, "line 4.*times"),
        (3, {"times_s": []}, "line 4.*times"),
        (3, {"times_s": "soon"}, "line 4"),
        (3, {"status": "MAYBE"}, "line 4.*MAYBE"),
        (3, {"created": "yesterday"}, "line 4.*yesterday"),
        (3, {"config": 7}, "line 4"),
        (3, {"mark": 77}, "line 4"),
        (1, {"flops": 10**30}, "line 2.*64 bits"),
        (3, {"seed": 2**63}, "line 4.*64 bits"),
        (3, {"seed": math.inf}, "line 4"),
        (3, {"build_s": math.nan}, "line 4.*finite"),
        (3, {"device": "a\0b"}, "line 4.*NUL"),
        (3, {"error": "\ud800"}, "line 4.*surrogates"),
    ],
)
def test_a_line_that_cannot_be_one_is_named(
    log: TuningLog, tmp_path: Path, number: int, fields: dict[str, object], words: str
) -> None:
    with (
        log,
        TuningLog(tmp_path / "there.db") as other,
        pytest.raises(LogError, match=words) as error,
    ):
        add(other, changed(log, number, **fields))
    assert str(error.value).startswith("x.jsonl")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "prose\n", '{"format": "autotune-log"', "[" * 100_000])
def test_what_is_no_exported_log_is_refused(tmp_path: Path, text: str) -> None:
    with TuningLog(tmp_path / "there.db") as log, pytest.raises(LogError, match=r"x\.jsonl"):
        add(log, text)


_RECORDS = st.builds(
    record,
    st.integers(1, 3).map(lambda m: matmul(m=m)),
    times=st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=3).map(tuple),
    status=st.sampled_from([Status.OK, Status.OK, Status.WRONG_RESULT]),
    tile=st.integers(1, 64),
)


@settings(max_examples=20)
@given(records=st.lists(_RECORDS, max_size=12))
def test_any_log_survives_the_way_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, records: Sequence[Record]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    with TuningLog(folder / "a.db") as log, TuningLog(folder / "b.db") as other:
        log.append(records)
        add(other, exported(log), trust=True)
        assert kept(other) == list(dict.fromkeys(records))
