"""Settings: shipped defaults, a user's overrides, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import ConfigError
from autotune.measure.types import Timing
from autotune.settings import load_settings


def test_the_shipped_timing_is_the_default_timing() -> None:
    assert load_settings().timing == Timing()


def test_a_file_overrides_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[tune]\nbatch = 5\n[timing]\nbudget_s = 1\n")
    settings = load_settings(path)
    assert (settings.batch, settings.timing.budget_s) == (5, 1)
    assert settings.min_gain == load_settings().min_gain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tune]\nspeed = 1\n", r"\[tune\] speed is unknown; known: batch"),
        ("[fun]\n", r"unknown table \[fun\]"),
        ("batch = 3\n", r"unknown table \[batch\]"),
        ("[tune]\nbatch = 0\n", "positive whole number, got 0"),
        ("[tune]\nbatch = 2.5\n", "positive whole number, got 2.5"),
        ("[tune]\nmin_gain = true\n", "positive number, got True"),
        ("[timing]\nbest_s = 1.0\n", "best_s is unknown"),
        ("[tune\n", "not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_settings("none.toml")
