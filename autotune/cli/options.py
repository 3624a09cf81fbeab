"""Options that several commands share, and what their texts mean. Standard library only."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import arguments
from autotune.command_line import Parser
from autotune.db import files
from autotune.db.selection import moment
from autotune.errors import ConfigError, LogError
from autotune.parse_int import LARGEST, whole

if TYPE_CHECKING:
    from rpc_server.runners import FarmOptions

DEFAULT_LOG = "tuning.db"
COMPILED_TOO = "an .onnx, .tflite or .pt2 file, zoo:NAME or a compiled model"
SUFFIX = ".model"
"""Ending of compiled models' names."""
MAX_PRIORITY = 100
"""Largest priority, up or down, that the farm's messages allow."""
PRECISIONS = ("float32", "bf16", "f16", "tf32", "int8")
Shapes = dict[str, tuple[int | str, ...]]


def absent_log(options: argparse.Namespace) -> str:
    """What to say of a log that was named and is not there (a slip, probably); else nothing. The
    default log is absent until the first tuning, which is nothing to speak of."""
    return "" if options.log == DEFAULT_LOG else files.absent(options.log)


def pin(parser: Parser) -> None:
    parser.add_argument(
        "--pin", type=cores, metavar="CORES", help="run on these cores only: 0 or 0,2-3"
    )


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
    """Raise ConfigError where what is written has no name, or would take the place of what is
    read."""
    output = getattr(options, "output", None)
    if output is None:
        return
    if not output:
        raise ConfigError("-o: an empty path; expected a name for what is written")
    given = [getattr(options, name, None) or () for name in ("log", "model", "models", "machine")]
    read = [name for one in given for name in ((one,) if isinstance(one, str) else one)]
    for name in read:
        if _is_same(name, output):
            raise ConfigError(f"-o {output} would replace {name}, which is read; choose another")


def _is_same(name: str, output: str) -> bool:
    try:
        return os.path.samefile(name.removeprefix("sqlite:///"), output)
    except (OSError, ValueError):  # one of them is no file
        return False


def farm_options(options: argparse.Namespace) -> FarmOptions | None:
    """How a farm is used, by the file and, over it, the command line; None where no farm is spoken
    of. Raises ConfigError."""
    given = {n: v for n in ("boards", "priority") if (v := getattr(options, n)) is not None}
    if options.device == "local" and not given and not options.farm:
        return None
    from rpc_server.tracker.settings import load_farm_settings  # needs rpyc

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


def date(*, end: bool) -> Callable[[str], str]:
    """An argument type: a date or moment as records have it."""

    def parsed(text: str) -> str:
        try:
            return moment(text, end=end)
        except LogError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


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
    try:
        return arguments.duration("", text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
    """['x=1x3xHx224'] as {'x': (1, 3, 'H', 224)}. Raises ConfigError."""
    shapes: Shapes = {}
    for text in texts:
        name, _, shape = text.rpartition("=")
        dims = re.split("[xX]", shape) if shape else []
        extents = [dim if dim.isidentifier() else whole(dim) or 0 for dim in dims]
        if not name or not all(extents):
            raise ConfigError(f"expected --shape NAME=1x3x224x224, got {text!r}")
        if name in shapes:
            raise ConfigError(f"--shape of {name} is given twice; give it once")
        shapes[name] = tuple(extents)
    return shapes


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """['H=64:1024:32'] as {'H': (64, 1024, 32)}; the step may be left out. Raises ConfigError."""
    found: dict[str, tuple[int, int, int]] = {}
    for text in texts:
        symbol, _, limits = text.rpartition("=")
        numbers = [whole(n) or 0 for n in limits.split(":")]
        if not symbol or not all(numbers) or len(numbers) not in (2, 3):
            raise ConfigError(f"expected --range H=64:1024:32, got {text!r}")
        if symbol in found:
            raise ConfigError(f"--range of {symbol} is given twice; give it once")
        found[symbol] = (numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1)
    return found


def parse_at(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """['H=224,640'] as {'H': (224, 640)}. Raises ConfigError."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        symbol, _, listed = text.rpartition("=")
        sizes = tuple(whole(n) or 0 for n in listed.split(","))
        if not symbol or not all(sizes):
            raise ConfigError(f"expected --at H=224 or H=224,640, got {text!r}")
        if symbol in found:
            raise ConfigError(
                f"--at of {symbol} is given twice; give its sizes once: {symbol}=1,2"
            )
        found[symbol] = sizes
    return found


def at(parser: Parser) -> None:
    """The option that names sizes of a model whose sizes are open."""
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="H=224",
        help="size of a symbolic dimension, where these are open; repeat for each",
    )


def cache_dir() -> Path:
    """Where measured device profiles are kept between commands."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "autotune"
