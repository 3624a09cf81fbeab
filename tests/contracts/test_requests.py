"""Options of `autotune.compile` and `autotune.tune`: a field each, with all that belongs to it."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.cli import flags
from autotune.command_line import Parser
from autotune.errors import InputError
from autotune.request import CompileRequest
from autotune.tuner.request import TuneRequest
from rpc_server.runners import FarmOptions
from tests.unit.machine.samples import PROFILE

KINDS = (CompileRequest, TuneRequest)
FUNCTIONS: dict[str, type[CompileRequest]] = {
    "compile": CompileRequest,
    "partition": CompileRequest,
    "tune": TuneRequest,
}
FIELDS = [
    pytest.param(kind, of, id=f"{kind.__name__}-{of.name}")
    for kind in KINDS
    for of in dataclasses.fields(kind)
]
ALL = dataclasses.fields(TuneRequest)
TEXTS = {
    "model": "zoo:tiny",
    "shapes": "x=1x3x8x8",
    "target": "cortex-a72",
    "machine": "machine.json",
    "ranges": "H=64:1024:32",
    "at": "H=224,640",
    "device": "tracker://127.0.0.1:9/a",
    "farm": "farm.toml",
    "certs": "certs",
    "build": "host",
    "executor": "dask://127.0.0.1:9",
    "log": "other.db",
    "trials": "7",
    "time_s": "2m",
    "until_gain": "5%",
    "threads": "2",
    "accuracy": "strict",
    "precision": "bf16",
    "calibration": "x.npz",
    "rewrites": "none",
    "rewrite_time": "20s",
    "fallback": "",
    "seed": "3",
    "strategy": "random",
    "settings": "tune.toml",
    "flush": "",
    "pretrained": "model.json",
    "dry_run": "",
}
"""What a flag is followed by, so that its field gets another value than its default."""
FILES = {
    "farm.toml": "[client]\nboards = 3\n",
    "tune.toml": "[tune]\nbatch = 3\n",
    "machine.json": json.dumps(PROFILE.to_json()),
}


@pytest.mark.parametrize("of", ALL, ids=lambda of: of.name)
def test_a_field_has_a_check_and_is_documented(of: dataclasses.Field[Any]) -> None:
    assert callable(of.metadata["check"])
    doc = of.metadata["doc"]
    assert doc[0].isupper() or doc[0] in "'`"
    assert doc.endswith(".")
    assert "\n" not in doc


@pytest.mark.parametrize(("kind", "of"), FIELDS)
def test_a_default_passes_its_own_check(
    kind: type[CompileRequest], of: dataclasses.Field[Any]
) -> None:
    if of.default is dataclasses.MISSING:
        assert of.name == "model"
        return
    kind("zoo:tiny", **{of.name: of.default})
    if of.default is not None:
        of.metadata["check"](of.name, of.default)


@pytest.mark.parametrize(("kind", "of"), FIELDS)
def test_a_check_refuses_what_is_nothing(
    kind: type[CompileRequest], of: dataclasses.Field[Any]
) -> None:
    with pytest.raises(InputError):
        of.metadata["check"](of.name, object())
    given = {"model": "zoo:tiny", of.name: object()}
    with pytest.raises(InputError):
        kind(**given)


@pytest.mark.parametrize("of", ALL, ids=lambda of: of.name)
def test_a_field_has_a_flag_or_a_reason_for_none(of: dataclasses.Field[Any]) -> None:
    assert (of.name in flags.FLAGS) != (of.name in flags.PYTHON_ONLY)
    assert flags.PYTHON_ONLY.get(of.name, "a reason")


def test_every_flag_is_of_a_field() -> None:
    names = {of.name for of in ALL}
    assert flags.FLAGS.keys() - names == {"boards", "priority"}
    assert flags.PYTHON_ONLY.keys() <= names


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    flags.add(parser, *flags.FLAGS)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_no_flags_ask_for_what_no_options_do(kind: type[CompileRequest]) -> None:
    asked, plain = flags.request(kind, parsed("zoo:tiny")), kind("zoo:tiny")
    own = {"log", "shapes", "ranges", "farm", "settings"}
    for of in dataclasses.fields(kind):
        if of.name not in own:
            assert getattr(asked, of.name) == getattr(plain, of.name)


@pytest.mark.parametrize("name", [n for n, text in TEXTS.items() if n != "model"])
def test_a_flag_reaches_its_field_and_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        Path(file).write_text(text, encoding="utf-8")
    before = flags.request(TuneRequest, parsed("zoo:tiny"))
    options = [flags.FLAGS[name].name, *TEXTS[name].split()]
    after = flags.request(TuneRequest, parsed("zoo:tiny", *options))
    # No options of a farm are the default ones.
    before, after = (dataclasses.replace(r, farm=r.farm or FarmOptions()) for r in (before, after))
    changed = {of.name for of in ALL if getattr(before, of.name) != getattr(after, of.name)}
    assert changed == {name}


def test_the_texts_are_of_every_flag() -> None:
    assert TEXTS.keys() == flags.FLAGS.keys() - {"boards", "priority"}


@pytest.mark.parametrize(("name", "kind"), FUNCTIONS.items())
def test_a_function_s_options_are_its_request_s_fields(
    name: str, kind: type[CompileRequest]
) -> None:
    function = getattr(autotune, name)
    signature = inspect.signature(function)
    wanted = {of.name: of for of in dataclasses.fields(kind)}
    assert list(signature.parameters) == list(wanted)
    for parameter in signature.parameters.values():
        assert parameter.default == (
            inspect.Parameter.empty
            if wanted[parameter.name].default is dataclasses.MISSING
            else wanted[parameter.name].default
        )
        assert (parameter.kind is parameter.KEYWORD_ONLY) == (parameter.name != "model")
        assert f"`{parameter.name}`: " in function.__doc__


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_frozen_and_slotted(kind: type[CompileRequest]) -> None:
    request = kind("zoo:tiny")
    assert not hasattr(request, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.threads = 2  # type: ignore[misc]
    with pytest.raises(InputError, match="threads must be at least 1"):
        dataclasses.replace(request, threads=0)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (("zoo:tiny",), {"thread": 2}, "has no option 'thread'; did you mean 'threads'?"),
        (("zoo:tiny",), {"zzz": 2}, "has no option 'zzz'; it has model, target, "),
        (("zoo:tiny", "cpu"), {}, "too many positional arguments; options are given by name"),
        ((), {}, "missing a required argument: 'model'"),
        (("zoo:tiny",), {"model": "zoo:tiny"}, "multiple values for argument 'model'"),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_that_does_not_fit_is_one_line_about_the_function(
    name: str, given: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        getattr(autotune, name)(*given, **options)
    assert str(refused.value).startswith(name)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_text_of_an_error_is_one_line_whatever_it_quotes(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        autotune.load(tmp_path / "a\nb\x1b[2J.model")
    assert str(refused.value).isprintable()
    assert r"a\nb\x1b[2J.model" in str(refused.value)


@pytest.mark.parametrize("name", ["log", "machine", "cache_dir", "calibration", "certs"])
def test_what_no_file_can_be_called_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name} must be .* that no file's name has"):
        TuneRequest("zoo:tiny", **{name: "\ud800"})
