"""Options that several commands share, and what their texts mean. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.db import files
from autotune.digits import LARGEST, whole
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.target import Target
    from rpc_server.runners import FarmOptions

DEFAULT_LOG = "tuning.db"
COMPILED_TOO = "an .onnx file, zoo:NAME or a compiled model"
LONGEST_S = 1e9
"""More than any clock's wait may be."""
MAX_PRIORITY = 100
PRECISIONS = ("float32", "bf16", "f16", "tf32", "int8")
Shapes = dict[str, tuple[int, ...]]


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is an InputError: one line, like every other."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # What looks like -5s or -1% is a wrong value, not an option: the complaint shows it.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def model(parser: Parser, what: str = "an .onnx file or zoo:NAME") -> None:
    parser.add_argument("model", metavar="MODEL", help=what)
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="fix an input's symbolic dimensions; may be repeated",
    )


def log(parser: Parser) -> None:
    parser.add_argument(
        "--log",
        default=DEFAULT_LOG,
        metavar="FILE|URL",
        help=f"tuning log (default {DEFAULT_LOG})",
    )


def absent_log(options: argparse.Namespace) -> str:
    """What to say of a log that was named and is not there (a slip, probably); else nothing. The
    default log is absent until the first tuning, which is nothing to speak of."""
    log: str = options.log
    if log == DEFAULT_LOG or files.is_url(log) or files.exists(Path(log)):
        return ""
    return f"there is no tuning log {log}"


def target(parser: Parser) -> None:
    parser.add_argument(
        "--target", default="cpu", help="name or .toml file; see autotune targets (default cpu)"
    )


def threads(parser: Parser) -> None:
    from autotune.target import MAX_THREADS

    parser.add_argument(
        "--threads", type=between(1, MAX_THREADS), default=1, metavar="N",
        help="threads to run on (default 1)",
    )  # fmt: skip


def pin(parser: Parser) -> None:
    parser.add_argument(
        "--pin", type=cores, metavar="CORES", help="run on these cores only: 0 or 0,2-3"
    )


def numerics(parser: Parser) -> None:
    parser.add_argument(
        "--accuracy",
        choices=("normal", "strict"),
        default="normal",
        help="strict: only direct algorithms; normal: errors up to 1e-3 of the largest value",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of contractions: bf16 rounds their operands to bfloat16, int8 to bytes, by ranges "
        "found on samples; f16 and tf32 are for tensor cores (default float32)",
    )
    calibration(parser)


def calibration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibration",
        metavar="FILE.npz|FOLDER",
        help="samples of the inputs for int8 (default random ones)",
    )


def executor(parser: Parser, work: str) -> None:
    parser.add_argument(
        "--executor",
        default="local",
        metavar="local | dask://HOST:PORT",
        help=f"where {work} (default local)",
    )


def farm(parser: Parser) -> None:
    parser.add_argument(
        "--boards", type=at_least(1), metavar="N", help="of a tracker's key to use (default 1)"
    )
    parser.add_argument(
        "--priority",
        type=between(-MAX_PRIORITY, MAX_PRIORITY),
        metavar="N",
        help="before a tracker's other clients (default 0)",
    )
    parser.add_argument("--farm", metavar="FILE.toml", help="settings; see configs/farm")


def check_device(options: argparse.Namespace) -> None:
    """Raise ConfigError where an option is about boards and the device is none."""
    tracker = options.device.startswith("tracker://")
    away = options.device != "local"
    for name, unset, counts, wanted in (
        ("boards", None, tracker, "tracker://HOST:PORT/KEY"),
        ("priority", None, tracker, "tracker://HOST:PORT/KEY"),
        ("farm", None, away, "a board or a tracker"),
        ("certs", None, away, "a board or a tracker"),
        ("build", "board", away, "a board or a tracker"),
    ):
        if getattr(options, name) != unset and not counts:
            raise ConfigError(
                f"--{name} is for --device {wanted}, the device is {options.device}; name "
                f"one, or leave --{name} out"
            )


def check_output(options: argparse.Namespace) -> None:
    """Raise ConfigError where what is written would take the place of what is read."""
    output = getattr(options, "output", None)
    if not output:
        return
    given = [getattr(options, name, None) or () for name in ("log", "model", "models")]
    read = [name for one in given for name in ((one,) if isinstance(one, str) else one)]
    for name in read:
        if _is_same(name, output):
            raise ConfigError(f"-o {output} would replace {name}, which is read; choose another")


def _is_same(name: str, output: str) -> bool:
    try:
        return os.path.samefile(name.removeprefix("sqlite:///"), output)
    except (OSError, ValueError):  # one of them is no file
        return False


def farm_options(options: argparse.Namespace) -> FarmOptions:
    """Those of the file, under those of the command line. Raises ConfigError."""
    from rpc_server.farm_settings import load_farm_settings

    given = {n: v for n in ("boards", "priority") if (v := getattr(options, n)) is not None}
    return dataclasses.replace(load_farm_settings(options.farm).client, **given)


def at_least(least: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least `least`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, got {text!r}"
            )
        if value > LARGEST:
            raise argparse.ArgumentTypeError(
                f"expected a whole number up to {LARGEST}, got {text!r}"
            )
        return value

    return number


def between(least: int, most: int) -> Callable[[str], int]:
    """An argument type: a whole number from `least` to `most`."""
    number = at_least(least)

    def limited(text: str) -> int:
        value = number(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"expected a whole number up to {most}, got {text!r}")
        return value

    return limited


def duration_s(text: str) -> float:
    """An argument type: '90', '90s', '10m', '1h30m' in seconds."""
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    parts = found.groups() if found else (None,) * 3
    seconds = sum(float(p or 0) * unit for p, unit in zip(parts, (3600, 60, 1), strict=True))
    if not 0 < seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"expected a time like 90s, 10m or 1h30m, got {text!r}")
    return seconds


def cores(text: str) -> tuple[int, ...]:
    """An argument type: '0,2-4' as (0, 2, 3, 4)."""
    out: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if found is None:
            raise argparse.ArgumentTypeError(f"expected cores like 0,2-3, got {text!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        if last - first not in range(4096):
            raise argparse.ArgumentTypeError(f"expected cores like 0,2-3, got {text!r}")
        out += range(first, last + 1)
    return tuple(out)


def share(text: str) -> float:
    """An argument type: '1%' or '0.01' as 0.01; more than 0, less than 1."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a share like 1% or 0.01, got {text!r}")
    return value


def parse_shapes(texts: Sequence[str]) -> Shapes:
    """['x=1x3x224x224'] as {'x': (1, 3, 224, 224)}. Raises ConfigError."""
    shapes: Shapes = {}
    for text in texts:
        name, _, shape = text.rpartition("=")
        numbers = shape.lower().split("x") if shape else []
        extents = [whole(n) or 0 for n in numbers]
        if not name or not all(extents):
            raise ConfigError(f"expected --shape NAME=1x3x224x224, got {text!r}")
        if name in shapes:
            raise ConfigError(f"--shape of {name} is given twice; give it once")
        shapes[name] = tuple(extents)
    return shapes


def wanted_target(options: argparse.Namespace) -> Target:
    """The target that --target, --threads, --accuracy and --precision name. Raises TargetError."""
    from autotune.target import wanted_target as named

    return named(
        options.target,
        threads=options.threads,
        accuracy=options.accuracy,
        precision=options.precision,
    )


def cache_dir() -> Path:
    """Where measured device profiles are kept between commands."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "autotune"
