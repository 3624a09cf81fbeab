"""Settings of a farm: defaults, files, and what is refused."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from autotune.errors import ConfigError
from rpc_server.tracker.settings import RANGES, UNSET, check_board, load_farm_settings
from rpc_server.tracker.types import FarmRules


def test_the_shipped_settings_are_the_defaults() -> None:
    settings = load_farm_settings()
    assert settings.tracker.rules == FarmRules()
    assert settings.client.boards == 1


def test_a_file_overrides_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "farm.toml"
    path.write_text(
        "[tracker]\nlease_s = 3\n[client]\nboards = 4\nqueue_s = 5.0\n"
        "[board]\naccept_objects = true\ncores = '0-1'\n",
        "utf-8",
    )
    settings = load_farm_settings(path)
    assert (settings.board.accept_objects, settings.board.cores) == (True, "0-1")
    assert settings.tracker.rules.lease_s == 3
    assert (settings.client.boards, settings.client.deadlines.queue_s) == (4, 5.0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[farm]\n", "unknown table"),
        ("[tracker]\nleese_s = 1\n", "leese_s is unknown"),
        ("[tracker]\nlease_s = 'long'\n", "must be a number"),
        ("[tracker]\nlease_s = 0\n", "must be from 0.1 to 86,400, got 0"),
        ("[tracker]\nlease_s = nan\n", "must be from 0.1 to 86,400, got nan"),
        ("[tracker]\nheartbeat_s = 4.0\n", "more than two heartbeats of 4 s, got 8"),
        ("[client]\nboards = 1.5\n", "must be a whole number"),
        ("[board]\nkey = 1\n", "must be text"),
        ("[board]\naccept_objects = 1\n", "must be true or false"),
        ("[board]\nthreads = true\n", "must be a whole number"),
        ("][", "not TOML"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "farm.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=error):
        load_farm_settings(path)


DEFAULTS = tomllib.loads(
    (resources.files("autotune.configs.farm") / "default.toml").read_text(encoding="utf-8")
)
NUMBERS = [
    (table, key)
    for table, values in DEFAULTS.items()
    for key, value in values.items()
    if type(value) in (int, float)
]
TEXTS = [(t, k) for t, values in DEFAULTS.items() for k, v in values.items() if type(v) is str]


def test_every_number_has_a_range_that_its_default_is_in() -> None:
    assert sorted(NUMBERS) == sorted((t, k) for t, keys in RANGES.items() for k in keys)
    for table, key in NUMBERS:
        least, most = RANGES[table][key]
        default = DEFAULTS[table][key]
        assert least <= default <= most or default == UNSET[table, key]


@pytest.mark.parametrize("value", ["-5", "1e300", "-1e300", "inf", "nan", str(1 << 80), "'x'"])
@pytest.mark.parametrize(("table", "key"), NUMBERS)
def test_no_number_is_taken_that_cannot_be_meant(
    tmp_path: Path, table: str, key: str, value: str
) -> None:
    if (table, key, value) == ("client", "priority", "-5"):
        value = "-101"
    path = tmp_path / "farm.toml"
    path.write_text(f"[{table}]\n{key} = {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_farm_settings(path)
    assert f"[{table}] {key} must be" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("table", "key"), TEXTS)
def test_text_is_one_line(tmp_path: Path, table: str, key: str) -> None:
    path = tmp_path / "farm.toml"
    path.write_text(f'[{table}]\n{key} = "a\\u001b[2J"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{key} must be one line of text"):
        load_farm_settings(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_mib", -5), ("memory_mib", 1), ("memory_mib", 1 << 40), ("threads", 0),
        ("threads", -1), ("threads", 1 << 40), ("name", "a\nb"), ("reset_command", "\x07"),
    ],
)  # fmt: skip
def test_options_of_a_board_have_the_same_ranges(field: str, value: object) -> None:
    settings = dataclasses.replace(load_farm_settings().board, **{field: value})
    with pytest.raises(ConfigError, match="--" + field.replace("_", "-")):
        check_board(settings)
