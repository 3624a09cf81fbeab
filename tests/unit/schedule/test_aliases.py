"""Schedules of earlier releases, read under the former names of steps, give the same programs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from autotune.program.text import print_program
from autotune.schedule import STEPS, apply_schedule, schedule_from_json, schedule_to_json
from autotune.schedule.aliases import FORMER, RENAMED
from autotune.schedule.base import spellings
from benchmarks.search.recorded_spaces import schedule_hash
from tests.interpreter.parse import parse_program

LOGGED = json.loads((Path(__file__).parents[2] / "fixtures/former_schedules.json").read_text())
"""A program, a schedule and the digest of the resulting program, each as release 0.1 wrote it. But
`pipeline`: its only fetch has a constant slot since a GPU showed what ptxas made of the other."""


def test_a_logged_schedule_has_every_former_name() -> None:
    assert {s["step"] for case in LOGGED for s in case["schedule"]} >= RENAMED.keys()


def test_former_names_are_free_and_todays_are_steps() -> None:
    assert not RENAMED.keys() & set(STEPS)
    assert set(RENAMED.values()) <= set(STEPS)
    assert len(FORMER) == len(RENAMED)


@pytest.mark.parametrize("case", LOGGED, ids=lambda case: case["schedule"][-1]["step"])
def test_a_logged_schedule_gives_the_program_that_it_gave(case: dict[str, Any]) -> None:
    schedule = schedule_from_json(case["schedule"])
    text = print_program(apply_schedule(parse_program(case["program"]), schedule))
    assert hashlib.sha256(text.encode()).hexdigest() == case["sha256"]
    written = schedule_to_json(schedule)
    assert not {s["step"] for s in written} & RENAMED.keys()
    now, former = json.loads(json.dumps(spellings(schedule)))
    assert now == json.loads(json.dumps(written))
    assert [s["step"] for s in former] == [s["step"] for s in case["schedule"]]


def test_a_survey_knows_the_hash_that_an_earlier_release_gave_a_schedule() -> None:
    data = [{"step": "write_out", "loop": "i"}, {"step": "hoist", "loop": "k"}]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    former = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    assert schedule_hash(schedule_from_json(data)) == former


def test_a_schedule_without_renamed_steps_has_one_spelling() -> None:
    schedule = schedule_from_json([{"step": "hoist", "loop": "k"}])
    assert spellings(schedule) == [schedule_to_json(schedule)]
