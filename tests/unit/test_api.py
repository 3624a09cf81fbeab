"""The Python API: every public parameter times every wrong kind of value is one line, before any
work begins."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.db.store import TuningLog
from autotune.errors import InputError, MissingLogWarning
from autotune.runtime import is_artifact, random_feeds
from autotune.runtime.model import CompiledModel
from autotune.types import TensorType
from rpc_server.runners import FarmOptions
from tests.unit.runtime import fakes

NAN, INFINITY = float("nan"), float("inf")
X = np.zeros((2, 3), np.float32)
NUMBERS: tuple[object, ...] = (3, 1.5, True, NAN)
CONTAINERS: tuple[object, ...] = ([], {}, (), {1})
OBJECTS: tuple[object, ...] = (object(), int, len, X, io.StringIO("x"))
UNUSABLE_PATHS: tuple[object, ...] = ("", "a\0b", b"bytes")
NO_PATH = (None, *NUMBERS, *CONTAINERS, *OBJECTS, *UNUSABLE_PATHS)
NO_TEXT = (None, *NUMBERS, *CONTAINERS, *OBJECTS, b"cpu", "", "no such word")
NO_FLAG = (None, 0, 1, 1.5, "yes", "", [], X)
NO_COUNT = (None, "2", "", b"2", 1.5, 2.0, NAN, INFINITY, True, [], [2], {}, object(), int, X, -1)
NO_AMOUNT = ("9", "", b"9", NAN, INFINITY, -INFINITY, True, [], {}, object(), X, 0, -1, 10**5000)
NO_MODEL = (None, *NUMBERS, *CONTAINERS, *OBJECTS, "", "a\0b")
NO_LOG = (*NUMBERS, *CONTAINERS, *OBJECTS, *UNUSABLE_PATHS, TuningLog)
NO_SHAPES = (
    *NUMBERS, *OBJECTS, "x=1x3", [], ("x", (1, 3)), {"x": "1x3"}, {"x": 3}, {"x": None},
    {"x": (1.5,)}, {"x": ("1",)}, {"x": (True,)}, {"x": {1, 3}}, {"x": {1: 3}}, {"x": b"13"},
    {3: (1, 3)}, {None: (1,)}, {"x": (None,)}, {"x": (1 << 70,)},
)  # fmt: skip
NO_SAMPLES = (*NUMBERS, object(), int, len, "", "a\0b", b"x", [3], [X], ["x"], {3: X}, [{3: X}])
NO_ARRAYS = (None, *NUMBERS, *CONTAINERS, *OBJECTS, "x", [X], {3: X}, {None: X}, {"nope": X})

COMPILE: dict[str, tuple[object, ...]] = {
    "model": NO_MODEL,
    "target": (*NO_TEXT, "a\0b"),
    "machine": (*NO_PATH[1:], "no such file"),
    "cache_dir": NO_PATH[1:],
    "log": NO_LOG,
    "threads": (*NO_COUNT, 0, 10**9, 10**5000),
    "accuracy": NO_TEXT,
    "precision": NO_TEXT,
    "calibration": NO_SAMPLES,
    "shapes": NO_SHAPES,
    "rewrites": (0, 1.5, "", [], object()),
    "rewrite_time": NO_AMOUNT,
    "fallback": (None, 0, 1, "no", [], object()),
    "ranges": (*NUMBERS, *OBJECTS, "H=1:2", {"H": 3}, {"H": (1,)}, {"H": (5, 4)}, {3: (1, 2)}),
}
TUNE: dict[str, tuple[object, ...]] = {
    **COMPILE,
    "at": (*NUMBERS, *OBJECTS, "H=1", {"H": 3}, {"H": ()}, {"H": (0,)}, {"H": (1.5,)}, {3: (1,)}),
    "log": (None, *NO_LOG),
    "device": NO_TEXT,
    "executor": (*NUMBERS, *CONTAINERS, *OBJECTS, "", "no such", ThreadPoolExecutor),
    "trials": (*NO_COUNT[1:], 0, 10**30),
    "time_s": NO_AMOUNT,
    "until_gain": (*NO_AMOUNT, 1),
    "seed": (*NO_COUNT, 1 << 63),
    "strategy": NO_TEXT,
    "cost_model": NO_TEXT,
    "pretrained": NO_PATH[1:],
    "settings": (*NUMBERS, *CONTAINERS, *OBJECTS, "settings.toml"),
    "cache_dir": NO_PATH[1:],
    "certs": NO_PATH[1:],
    "build": NO_TEXT,
    "farm": (*NUMBERS, *CONTAINERS, *OBJECTS, "farm.toml", FarmOptions),
    "on_event": (*NUMBERS, *CONTAINERS, object(), "print", X),
    "flush": NO_FLAG,
    "dry_run": NO_FLAG,
}
RUN: dict[str, tuple[object, ...]] = {
    "feeds": NO_ARRAYS,
    "outputs": (*NUMBERS, object(), int, "y", [3], [None], ["nope"], ["y", "y"], b"y", X),
    "out": (*NUMBERS, [], (), "y", object(), {"y": [1.0]}, {"y": None}, {3: X}, {"nope": X}),
}
BENCH: dict[str, tuple[object, ...]] = {
    "repeats": (*NO_COUNT, 0, 10**30),
    "feeds": NO_ARRAYS[1:],
    "seed": (*NO_COUNT, 1 << 63),
    "clock": (None, *NUMBERS, *CONTAINERS, object(), "clock"),
}
FARM: dict[str, tuple[object, ...]] = {
    "boards": (*NO_COUNT, 0),
    "priority": (*NO_COUNT[:-1], 101, -101),
    "deadlines": (None, *NUMBERS, {}, "long"),
}


def compiled(**arguments: object) -> object:
    return autotune.compile(**{"model": "absent.onnx", **arguments})  # type: ignore[arg-type]


def tuned(**arguments: object) -> object:
    return autotune.tune(**{"model": "absent.onnx", **arguments})  # type: ignore[arg-type]


def parted(**arguments: object) -> object:
    return autotune.partition(**{"model": "absent.onnx", **arguments})  # type: ignore[arg-type]


def model() -> CompiledModel:
    return CompiledModel(fakes.image(), fakes.CallbackLibrary())


def run(**arguments: Any) -> object:
    return model().run(**{"feeds": {"x": X}, **arguments})


def bench(**arguments: Any) -> object:
    return model().bench(**{"repeats": 1, **arguments})


def drawn(seed: Any) -> object:
    return random_feeds({"x": TensorType(dtype="float32", shape=(2,))}, seed)


SMALL: dict[str, tuple[Callable[..., object], Mapping[str, tuple[object, ...]]]] = {
    "load": (autotune.load, {"source": NO_PATH[:-1]}),
    "save": (model().save, {"path": NO_PATH}),
    "is_artifact": (is_artifact, {"path": (None, *NUMBERS, *CONTAINERS, object(), b"x")}),
    "random_feeds": (drawn, {"seed": (*NO_COUNT, 1 << 63)}),
    "TuningLog": (TuningLog, {"path_or_url": NO_PATH}),
    "pin": (
        autotune.pin,
        {"cores": ("0", b"0", *NUMBERS, None, [], ["0"], [1.5], [-1], [True], [10**9], object())},
    ),
    "pin to one": (
        lambda threads: autotune.pin([0], threads),
        {"threads": (*NO_COUNT, 0)},
    ),
}
TABLE: dict[str, tuple[Callable[..., object], Mapping[str, tuple[object, ...]]]] = {
    "compile": (compiled, COMPILE),
    "partition": (parted, COMPILE),
    "tune": (tuned, TUNE),
    "run": (run, RUN),
    "bench": (bench, BENCH),
    "FarmOptions": (FarmOptions, FARM),
    **SMALL,
}
CASES = [
    pytest.param(function, name, value, id=f"{what}-{name}-{number}")
    for what, (function, parameters) in TABLE.items()
    for name, values in parameters.items()
    for number, value in enumerate(values)
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("function", "name", "value"), CASES)
def test_a_wrong_value_is_one_line_before_any_work(
    function: Callable[..., object], name: str, value: object, folder: Path
) -> None:
    with pytest.raises(InputError) as caught:
        function(**{name: value})
    message = str(caught.value)
    assert "absent.onnx" not in message, "the model was looked for before the arguments"
    assert "\n" not in message
    assert len(message) < 400
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (autotune.compile, COMPILE),
        (autotune.partition, COMPILE),
        (autotune.tune, TUNE),
        (CompiledModel.run, RUN),
        (CompiledModel.bench, BENCH),
        (FarmOptions, FARM),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_the_table_has_every_parameter(
    function: Callable[..., object], table: Mapping[str, object]
) -> None:
    assert inspect.signature(function).parameters.keys() - {"self"} == table.keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"threads": "2"}, "threads must be a whole number, got '2' (str)"),
        ({"shapes": {"x": "1x3"}}, "like (1, 3), got '1x3' (str)"),
        ({"shapes": {3: (1,)}}, "shapes must be a dict by input name, got the key 3 (int)"),
        ({"target": 3}, "target must be a name, a .toml file or a Target, got 3 (int)"),
        ({"log": 5}, "log must be a path, an SQLAlchemy URL or an open log, got 5 (int)"),
        (
            {"accuracy": "high"},
            "accuracy is 'normal' or 'strict' or 'reproducible', got 'high' (str)",
        ),
        (
            {"model": None},
            "model must be a path of an .onnx, .tflite or .pt2 file, 'zoo:NAME',",
        ),
        ({"calibration": [3]}, "sample 0 for calibration must be a dict of arrays"),
    ],
)
def test_what_is_said_of_compile(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        compiled(**arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"trials": -1}, "trials must be at least 1, got -1"),
        ({"trials": "9"}, "trials must be a whole number, got '9' (str)"),
        ({"time_s": "10m"}, "time_s must be a number, got '10m' (str)"),
        ({"time_s": NAN}, "time_s must be more than 0 seconds, got nan"),
        ({"time_s": INFINITY}, "time_s must be at most 1e+09 seconds, got inf"),
        ({"until_gain": NAN}, "until_gain is a share between 0 and 1, got nan"),
        ({"flush": 1}, "flush must be True or False, got 1 (int)"),
        ({"device": "elsewhere"}, "expected the device local, rpc://HOST:PORT or tracker://"),
        ({"executor": "slurm"}, "expected the executor local or dask://HOST:PORT, got 'slurm'"),
        ({"strategy": "best"}, "unknown strategy 'best'; known:"),
    ],
)
def test_what_is_said_of_tune(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        tuned(**arguments)
    assert words in str(caught.value)


class Folder:
    """Stands for a path, as those of other packages do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_what_stands_for_a_number_or_a_path_is_taken(folder: Path) -> None:
    with pytest.warns(MissingLogWarning):
        model = autotune.compile("zoo:tiny", threads=np.int64(1), log=Folder(folder / "none.db"))  # type: ignore[arg-type]
    model.save(Folder(folder / "tiny.model"))
    loaded = autotune.load(Folder(folder / "tiny.model"))
    assert dict(loaded.inputs) == dict(model.inputs)
    assert len(loaded.bench(np.int32(2)).latency_s) == 2  # type: ignore[arg-type]


def test_every_public_function_and_parameter_is_described() -> None:
    for name in ("compile", "partition", "tune", "load", "pin"):
        function = getattr(autotune, name)
        assert function.__doc__
        for parameter in inspect.signature(function).parameters:
            assert f"`{parameter}`" in function.__doc__ or name in ("load", "pin"), parameter
    for name, member in inspect.getmembers(CompiledModel):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name
