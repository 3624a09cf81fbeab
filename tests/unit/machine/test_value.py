"""Machines: their tables say what every value is; what is not understood is refused."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources

import pytest

from autotune.errors import TargetError
from autotune.machine import Machine
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.machine.speeds import (
    SOURCES,
    CpuSpeeds,
    GpuSpeeds,
    NarrowCoreSpeeds,
    TileCoreSpeeds,
    parse_speeds,
    shipped_narrow_speeds,
    shipped_speeds,
)
from autotune.target import Target, load_target, target_names

FOLDER = resources.files("autotune.configs.machines")
TABLES = {
    "zen4.toml": CpuSpeeds,
    "gpu.toml": GpuSpeeds,
    "granite_rapids.toml": TileCoreSpeeds,
    **dict.fromkeys(
        (
            "cortex_a72.toml",
            "neoverse_n1.toml",
            "neoverse_v1.toml",
            "apple_m1.toml",
            "wasm32.toml",
        ),
        NarrowCoreSpeeds,
    ),
}
ENTRY = '{ value = 1.0, unit = "1", source = "assumed", by = "a test" }'


def text(table: str) -> str:
    return (FOLDER / table).read_text(encoding="utf-8")


def test_every_shipped_table_has_a_kind() -> None:
    assert {f.name for f in FOLDER.iterdir() if f.name.endswith(".toml")} == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_value_has_a_unit_and_a_source(table: str) -> None:
    entries = tomllib.loads(text(table))
    assert entries.keys() == {f.name for f in dataclasses.fields(TABLES[table])}
    for entry in entries.values():
        assert entry["source"] in SOURCES
        assert entry["unit"]
        assert entry["by"]


@pytest.mark.parametrize("table", TABLES)
def test_a_key_that_is_unknown_or_missing_is_named(table: str) -> None:
    with pytest.raises(TargetError, match=f"{table}: unknown key warp_speed"):
        parse_speeds(TABLES[table], f"{text(table)}\nwarp_speed = {ENTRY}", table)
    first, *others = (f.name for f in dataclasses.fields(TABLES[table]))
    with pytest.raises(TargetError, match=f"missing key {min(others)}"):
        parse_speeds(TABLES[table], f"{first} = {ENTRY}", table)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value = 3.0e9", "value = 0"),
        ("value = 3.0e9", "value = inf"),
        ("value = 3.0e9", "value = true"),
        ("value = 3.0e9", 'value = "fast"'),
        ('unit = "1/s"', 'unit = ""'),
        ('unit = "1/s", ', ""),
        ('source = "assumed"', 'source = "guessed"'),
    ],
)
def test_an_entry_that_says_too_little_is_refused(old: str, new: str) -> None:
    table = text("zen4.toml")
    assert old in table
    with pytest.raises(TargetError, match=r"zen4\.toml: clock_hz"):
        parse_speeds(CpuSpeeds, table.replace(old, new, 1), "zen4.toml")


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(TargetError, match=r"zen4\.toml: not TOML"):
        parse_speeds(CpuSpeeds, "clock_hz", "zen4.toml")


@pytest.mark.parametrize("name", target_names())
def test_every_target_is_a_machine_of_nominal_speeds(name: str) -> None:
    target = load_target(name)
    machine = Machine.of(target)
    cpu, gpu = shipped_speeds()
    own = shipped_narrow_speeds("wasm32" if target.is_wasm else target.cpu)
    own = None if target.sve_granules else own
    cpu = machine.cpu if target.sve_granules else cpu  # tests/unit/codegen/test_scalable.py
    assert machine.cpu == (dataclasses.replace(cpu, **dataclasses.asdict(own)) if own else cpu)
    assert machine.gpu == gpu
    assert machine.profile.peak_flops > 0
    assert all(level.load_bytes_per_s > 0 for level in machine.profile.levels)
    speeds = [level.load_bytes_per_s for level in machine.profile.levels]
    assert speeds == sorted(speeds, reverse=True)


def profile(target: Target) -> DeviceProfile:
    memory = CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=1e10)
    return DeviceProfile(
        device="a", target=target, peak_flops=1e11, levels=(memory,), parallel_region_s=0.0
    )


def test_what_a_device_measured_takes_the_place_of_nominal_speeds() -> None:
    base = load_target("x86-64-v4")
    target = dataclasses.replace(base, features=f"{base.features},+avx512vnni")
    machine = Machine.of(target, profile(target))
    assert machine.profile == profile(target)
    assert machine.peak_flops("direct") == machine.peak_flops("winograd4") == 1e11
    assert machine.peak_flops("int8") == 4e11


@pytest.mark.parametrize(
    ("features", "bf16", "amx_bf16"),
    [
        ("+avx512f", 0.4, 0.0),
        ("+avx512f,+avx512bf16", 2.0, 0.0),
        ("+avx512f,+avx512bf16,+avx512fp16", 0.5, 14.6),
        ("+avx512f,+avx512bf16,+amx-tile,+amx-bf16", 0.5, 14.6),
    ],
)
def test_products_of_short_operands_are_as_fast_as_the_features_say(
    features: str, bf16: float, amx_bf16: float
) -> None:
    target = dataclasses.replace(load_target("x86-64-v4"), features=features)
    machine = Machine.of(target, profile(target))
    assert machine.peak_flops("bf16") == bf16 * 1e11
    assert machine.peak_flops("amx_bf16") == amx_bf16 * 1e11


@pytest.mark.parametrize(
    ("name", "features", "least", "most"),
    [
        ("x86-64-avx-vnni", "", 3.0, 4.0),
        ("x86-64-v4", ",+avx512vnni", 3.0, 4.0),
        ("x86-64-v3", "", 0.5, 1.0),
        ("neoverse-n1", "", 1.0, 1.2),
        ("neoverse-v1", "", 3.0, 4.0),
        ("cortex-a72", "", 0.4, 1.0),
    ],
)
def test_bytes_are_multiplied_faster_where_an_instruction_does_it(
    name: str, features: str, least: float, most: float
) -> None:
    target = load_target(name)
    target = dataclasses.replace(target, features=target.features + features)
    assert least <= Machine.of(target).products_per_lane("int8") <= most
