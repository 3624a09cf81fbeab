"""Every option of every command with values that cannot be meant: one line, status 2, at once."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from autotune.measure.runners.local import LocalRunner
from rpc_server.__main__ import main
from rpc_server.commands import parser
from rpc_server.tracker.store import StateStore

BAD: dict[str, dict[str, list[str]]] = {
    "serve": {
        "--listen": ["nowhere", "127.0.0.1:99999", "0.0.0.0:0", "127.0.0.1:-1"],
        "--tracker": ["nowhere", ":1", "127.0.0.1:x"],
        "--key": ["", "a b<", "k" * 500, "\x1b[2J"],
        "--name": ["a#b", "n" * 500, "a\nb"],
        "--advertise": ["a'b", "a\nb", "h" * 500],
        "--reset-command": ["no-such-program-here", "'open"],
        "--config": ["/nowhere.toml", "/"],
        "--target": ["no-such-target", "/nowhere.toml"],
        "--threads": ["0", "-1", "1e300", "x", "9" * 30],
        "--simulator": ["no-such-simulator", "unicorn"],  # the target is this host
        "--serial": ["/nowhere", "/nowhere,0", ",115200", "a\nb"],  # here, too
        "--cores": ["x", "0-99999", "-1", "1-0"],
        "--certs": ["/nowhere"],
        "--memory-mib": ["-5", "0.5", "1e300", "9" * 30, "63"],
        "--audit": ["/nowhere/audit.log", "/"],
    },
    "tracker": {
        "--listen": ["nowhere", "127.0.0.1:99999", "0.0.0.0:0"],
        "--certs": ["/nowhere"],
        "--state": ["/nowhere/farm.db", "/"],
        "--audit": ["/nowhere/audit.log"],
        "--config": ["/nowhere.toml"],
    },
    "status": {"--tracker": ["nowhere", "127.0.0.1:0"], "--certs": ["/nowhere"]},
    "release": {"--tracker": ["nowhere", "127.0.0.1:0"], "--certs": ["/nowhere"]},
    "drain": {"--tracker": ["nowhere", "127.0.0.1:0"], "--certs": ["/nowhere"]},
    "quarantine": {"--tracker": ["nowhere", "127.0.0.1:0"], "--certs": ["/nowhere"]},
    "issue": {
        "--role": ["king"], "--days": ["0", "-1", "1e300", "9" * 30, "x"], "--dir": ["/nowhere"],
    },
    "revoke": {"--dir": ["/nowhere"]},
    "init": {},
}  # fmt: skip
NEEDED = {
    "status": ["--tracker", "127.0.0.1:1"],
    "release": ["b0", "--tracker", "127.0.0.1:1"],
    "drain": ["b0", "--tracker", "127.0.0.1:1"],
    "quarantine": ["b0", "--tracker", "127.0.0.1:1"],
    "issue": ["name", "--role", "client"],
    "revoke": ["name"],
}
FARM = {"--key": ["--tracker", "127.0.0.1:1"], "--tracker": ["--key", "k"]}
SWITCHES = {"--help", "--accept-objects", "--lock-clocks", "--watch", "--json", "--objects"}
CASES = [
    (command, option, value)
    for command, options in BAD.items()
    for option, values in options.items()
    for value in values
]


def commands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= commands(below) or {name: below}
    return found


def test_every_option_of_every_command_is_in_the_table() -> None:
    there = {
        name: {
            text
            for action in command._actions
            for text in action.option_strings
            if text.startswith("--") and action.help != argparse.SUPPRESS
        }
        - SWITCHES
        for name, command in commands(parser()).items()
    }
    assert there == {name: set(options) for name, options in BAD.items()}


def unexpected(*_: object) -> None:
    raise AssertionError("it starts before it has checked what it was told")


@pytest.mark.parametrize("case", CASES, ids="=".join)
def test_a_bad_value_is_one_line_and_status_2_before_anything_starts(
    case: tuple[str, str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    command, option, value = case
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalRunner, "ready", unexpected)
    if (command, option) != ("tracker", "--state"):
        monkeypatch.setattr(StateStore, "load", unexpected)
    words = ["certs"] if command in ("issue", "revoke") else []
    words += [command, *NEEDED.get(command, [])]
    if command == "serve":
        words += ["--listen", "127.0.0.1:0", *FARM.get(option, FARM["--key"] + FARM["--tracker"])]
    if command == "tracker":
        words += ["--listen", "127.0.0.1:0"]
    with pytest.raises(SystemExit) as caught:
        main([*words, f"{option}={value}"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
    assert len(said) < 600
