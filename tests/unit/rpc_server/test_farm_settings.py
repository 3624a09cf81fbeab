"""Settings of a farm: defaults, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import ConfigError
from rpc_server.farm_settings import load_farm_settings
from rpc_server.farm_types import Rules


def test_the_shipped_settings_are_the_defaults() -> None:
    settings = load_farm_settings()
    assert settings.tracker.rules == Rules()
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
        ("[tracker]\nlease_s = 0\n", "must be positive"),
        ("[tracker]\nlease_s = nan\n", "must be positive"),
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
