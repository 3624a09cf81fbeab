"""Machines as JSON: what a release writes it reads, what earlier ones wrote it reads too, and what
is wrong in a file is one line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ConfigError
from autotune.machine import Machine
from autotune.machine.facts import FORMAT, NUMBERS, PAIRS, RUNS, MachineFacts
from autotune.machine.files import load_machine, read_machine
from autotune.machine.profile import DeviceProfile
from tests.unit.machine.samples import FACTS, PROFILE, RECORDED

Data = dict[str, Any]


def data_of(profile: DeviceProfile) -> Data:
    found: Data = json.loads(json.dumps(profile.to_json()))
    return found


def test_a_profile_with_facts_travels_as_json() -> None:
    assert DeviceProfile.from_json(data_of(PROFILE)) == PROFILE
    assert read_machine(json.dumps(PROFILE.to_json())) == PROFILE


def test_every_field_of_facts_is_checked_as_what_it_is() -> None:
    others = {"processor", "cores", "arithmetic", *RUNS}
    assert {f.name for f in dataclasses.fields(MachineFacts)} == {*PAIRS, *NUMBERS, *others}
    absent = [n for n in (*PAIRS, *NUMBERS) if not getattr(FACTS, n)]
    assert not absent, "the sample has every field, so that the round trip shows them all"


def test_facts_say_their_format() -> None:
    assert data_of(PROFILE)["facts"]["version"] == FORMAT


def test_what_is_added_within_a_format_is_left_out_and_what_is_missing_is_absent() -> None:
    data = data_of(PROFILE)
    data["facts"]["levitation_s"] = 1.0
    del data["facts"]["gathers_per_s"], data["facts"]["page_curve"]
    facts = DeviceProfile.from_json(data).facts
    assert facts == dataclasses.replace(FACTS, gathers_per_s=None, page_curve=())


def test_a_profile_without_facts_reads_as_it_did_before_there_were_any() -> None:
    old = dataclasses.replace(PROFILE, facts=None)
    data = data_of(old)
    assert "facts" not in data
    assert DeviceProfile.from_json(data) == old


def test_a_recorded_profile_of_an_earlier_release_is_filled_by_the_tables() -> None:
    profile = load_machine(RECORDED)
    assert profile.facts is None
    machine = Machine.of(profile.target, profile)
    assert machine.stream_s(1e6, 1 << 20) == pytest.approx(1e6 / 185.8e9, rel=1e-3)
    assert machine.cache_bytes(3) == int(480 * (1 << 20) * machine.cpu.own_share_of_l3)
    assert machine.latency_s(1 << 20) is None


WRONG: dict[str, tuple[Callable[[Data], object], str]] = {
    "newer": (lambda d: d["facts"].update(version=FORMAT + 1), "facts of format"),
    "no version": (lambda d: d["facts"].pop("version"), "missing 'version'"),
    "no peak": (lambda d: d.pop("peak_flops"), "missing peak_flops"),
    "another key": (lambda d: d.update(warp=3), "unexpected keyword argument 'warp'"),
    "a text for a peak": (lambda d: d.update(peak_flops="fast"), "peak_flops must be a number"),
    "no speed": (lambda d: d["levels"][0].update(load_bytes_per_s=0), "must be a number above 0"),
    "no levels": (lambda d: d.update(levels=[]), "at least one level"),
    "not a number": (lambda d: d["facts"].update(clock_hz=float("nan")), "clock_hz must be"),
    "a curve backwards": (lambda d: d["facts"]["load_curve"].reverse(), "from small to large"),
    "half a pair": (lambda d: d["facts"].update(loads=[[16]]), "not enough values"),
    "too many": (
        lambda d: d["facts"].update(loads=[[n, 1.0] for n in range(1, 999)]), "at most 128 rows"
    ),
    "a foreign target": (lambda d: d["target"].update(kind="abacus"), "kind must be one of"),
    "vectors of a text": (lambda d: d["target"].update(vector_bytes="64"), "must be an integer"),
    "facts of a text": (lambda d: d.update(facts="all"), "string indices|not"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_one_line_that_names_the_file(name: str, tmp_path: Path) -> None:
    spoil, message = WRONG[name]
    data = data_of(PROFILE)
    spoil(data)
    path = tmp_path / "there.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=message) as raised:
        load_machine(path)
    assert str(raised.value).startswith(f"{path} is no machine file (")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b'{"model": "resnet"}', "missing device, target, peak_flops"),
        (b"\xff\xfe", "is no machine file"),
        (b"[" * 100_000, "is no machine file"),
        (b" " * (1 << 20) + b"{}", "more than 1048576 bytes"),
    ],
)
def test_a_file_of_something_else_is_one_line(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "there.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        load_machine(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read machine file .*none\.json: No such file"):
        load_machine(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_machine(tmp_path)
