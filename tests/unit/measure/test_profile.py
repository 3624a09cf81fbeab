"""What a device measures about itself, on this machine."""

from __future__ import annotations

import dataclasses
import json

import pytest

from autotune.machine.profile import DeviceProfile
from autotune.measure.profile import measure_profile, profile_lines
from autotune.target import host_target


@pytest.fixture(scope="module")
def profile() -> DeviceProfile:
    return measure_profile(host_target(1), "here")


def test_every_level_has_all_its_bandwidths(profile: DeviceProfile) -> None:
    assert [level.name for level in profile.levels][-1] == "memory"
    for level in profile.levels:
        assert level.load_bytes_per_s > 0
        assert level.store_bytes_per_s > 0
        assert level.copy_bytes_per_s > 0


def test_every_width_up_to_the_targets_has_a_peak(profile: DeviceProfile) -> None:
    widths = [width for width, _ in profile.width_peaks]
    assert widths == sorted(widths)
    assert profile.width_peaks[-1] == (profile.target.vector_bytes, profile.peak_flops)
    assert all(peak > 0 for _, peak in profile.width_peaks)


def test_a_profile_travels_as_json(profile: DeviceProfile) -> None:
    text = json.dumps(profile.to_json())
    assert DeviceProfile.from_json(json.loads(text)) == profile


def test_a_profile_without_what_was_added_later_is_read(profile: DeviceProfile) -> None:
    data = json.loads(json.dumps(profile.to_json()))
    del data["width_peaks"]
    for level in data["levels"]:
        del level["store_bytes_per_s"], level["copy_bytes_per_s"]
    old = DeviceProfile.from_json(data)
    assert old.width_peaks == ()
    assert old.levels[0].store_bytes_per_s == 0
    assert dataclasses.replace(old, width_peaks=profile.width_peaks).target == profile.target


def test_a_profile_reads_well(profile: DeviceProfile) -> None:
    lines = profile_lines(profile)
    assert "bits" in lines[0]
    assert len(lines) == len(profile.levels) + 2
