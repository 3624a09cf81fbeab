"""Clocks, heat and throttling as the system's files tell them."""

from __future__ import annotations

from pathlib import Path

from autotune.measure.throttle import Throttling


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path


def test_events_of_the_kernels_cores_are_counted(tmp_path: Path) -> None:
    cpu = tmp_path / "devices/system/cpu"
    own = write(cpu / "cpu1/thermal_throttle/core_throttle_count", "3")
    other = write(cpu / "cpu0/thermal_throttle/core_throttle_count", "9")
    throttling = Throttling((1,), tmp_path)
    before = throttling.count()
    write(other, "10")
    assert throttling.count() == before
    write(own, "5")
    assert throttling.count() == before + 2


def test_a_raspberry_s_word_counts_while_it_is_slowed(tmp_path: Path) -> None:
    word = write(tmp_path / "devices/platform/soc/soc:firmware/get_throttled", "50000")
    throttling = Throttling((0,), tmp_path)
    assert throttling.count() == 0  # it was slowed once, and is not now
    write(word, "50005")
    assert throttling.count() == 1
    assert throttling.count() == 2


def test_the_slowest_clock_and_the_hottest_zone_are_told(tmp_path: Path) -> None:
    for core, khz in enumerate(("3500000", "1200000")):
        write(tmp_path / f"devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", khz)
    for zone, heat in enumerate(("41000", "83500")):
        write(tmp_path / f"class/thermal/thermal_zone{zone}/temp", heat)
    assert Throttling((0, 1), tmp_path).conditions() == "1200 MHz, 84 C"


def test_a_system_that_tells_nothing_is_never_throttled(tmp_path: Path) -> None:
    throttling = Throttling((0, 1), tmp_path)
    assert (throttling.count(), throttling.conditions()) == (0, "")
