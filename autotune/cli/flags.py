"""The fields of a request as flags. In: names of fields. Out: argparse's options, and the request
that they ask for.

A field's name, type, default and meaning in Python are in `autotune.request` and
`autotune.tuner.request`; here is, once for all commands, what it is called on a command line.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.cli import options as opt
from autotune.exactness import ACCURACIES
from autotune.request import CompileRequest
from autotune.target import MAX_THREADS
from autotune.tuner.request import BUILD_PLACES, TuneRequest

if TYPE_CHECKING:
    from autotune.settings import TuneSettings

Read = Callable[[argparse.Namespace], Any]
Request = TypeVar("Request", bound=CompileRequest)

TARGET = ("target", "threads")
MACHINE = ("machine",)
NUMERICS = ("accuracy", "precision", "calibration", "rewrites", "rewrite_time")
SETTLED = ("log", *TARGET, *NUMERICS, "shapes", "ranges")
"""What a compiled model has settled."""


class Flag:
    """A field on the command line. `settings`: what argparse is told of it, but its default, which
    is the field's; `read`: the field's value, where that is not the parsed one."""

    def __init__(self, name: str, read: Read | None = None, **settings: Any) -> None:
        self.name, self.read, self.settings = name, read, settings


def _read_shapes(options: argparse.Namespace) -> opt.Shapes:
    return opt.parse_shapes(options.shapes)


def _read_settings(options: argparse.Namespace) -> TuneSettings:
    from autotune.settings import load_settings

    return load_settings(options.settings)


FLAGS = {
    "model": Flag("model", metavar="MODEL", help="an .onnx, .tflite or .pt2 file, or zoo:NAME"),
    "shapes": Flag(
        "--shape",
        _read_shapes,
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="fix an input's symbolic dimensions, or name them (1x3xHxW); may be repeated",
    ),
    "ranges": Flag(
        "--range",
        lambda options: opt.parse_ranges(options.ranges),
        action="append",
        default=[],
        metavar="H=64:1024:32",
        help="sizes that a symbolic dimension may have: least, most, step; may be repeated",
    ),
    "at": Flag(
        "--at",
        lambda options: opt.parse_at(options.at) or None,
        action="append",
        default=[],
        metavar="H=224,640",
        help="sizes that count most of a symbolic dimension with a range (default: some drawn "
        "from it); repeat for each",
    ),
    "target": Flag(
        "--target", help="name or .toml file; see autotune targets (default %(default)s)"
    ),
    "machine": Flag(
        "--machine",
        metavar="FILE | nominal",
        help="predict for the machine that autotune machine --json described there, and compile "
        "for it; nominal: for none that was measured (default: this machine)",
    ),
    "device": Flag(
        "--device",
        metavar="local | rpc://HOST:PORT | tracker://HOST:PORT/KEY",
        help="where candidates are measured (default %(default)s)",
    ),
    "boards": Flag(
        "--boards", type=opt.at_least(1), metavar="N", help="of a tracker's key to use (default 1)"
    ),
    "priority": Flag(
        "--priority",
        type=opt.between(-opt.MAX_PRIORITY, opt.MAX_PRIORITY),
        metavar="N",
        help="before a tracker's other clients (default 0)",
    ),
    "farm": Flag(
        "--farm", opt.farm_options, metavar="FILE.toml", help="settings; see configs/farm"
    ),
    "certs": Flag(
        "--certs", metavar="DIR", help="folder of your certificate (see rpc_server certs)"
    ),
    "build": Flag(
        "--build",
        choices=BUILD_PLACES,
        help="where candidates are built; host: for boards with --accept-objects "
        "(default %(default)s)",
    ),
    "executor": Flag(
        "--executor",
        metavar="local | dask://HOST:PORT",
        help="where candidates are built, described and learnt from (default local)",
    ),
    "log": Flag("--log", metavar="FILE|URL", help="tuning log (default %(default)s)"),
    "trials": Flag(
        "--trials", type=opt.at_least(1), metavar="N", help="trials in the log when it ends"
    ),
    "time_s": Flag(
        "--time", type=opt.duration_s, metavar="10m", help="time to spend, such as 90s or 10m"
    ),
    "until_gain": Flag(
        "--until-gain",
        type=opt.share,
        metavar="1%",
        help="end when the next trials promise less than this, end to end",
    ),
    "threads": Flag(
        "--threads",
        type=opt.between(1, MAX_THREADS),
        metavar="N",
        help="threads to run on (default %(default)s)",
    ),
    "accuracy": Flag(
        "--accuracy",
        choices=ACCURACIES,
        help="strict: only direct algorithms, with denormal numbers; reproducible: the same bits "
        "whatever is tuned, on any number of threads, with AVX2 or AVX-512; normal: errors up to "
        "1e-3 of the largest value",
    ),
    "precision": Flag(
        "--precision",
        choices=opt.PRECISIONS,
        help="of contractions: bf16 rounds their operands to bfloat16, int8 to bytes, by ranges "
        "found on samples; f16 and tf32 are for tensor cores (default %(default)s)",
    ),
    "calibration": Flag(
        "--calibration",
        metavar="FILE.npz|FOLDER",
        help="samples of the inputs for int8 (default random ones)",
    ),
    "rewrites": Flag(
        "--rewrites",
        metavar="FILE | all | none",
        help="equations between graphs to use, proven first; see autotune rewrite (default: those "
        "found by hand; all: generated ones, too)",
    ),
    "rewrite_time": Flag(
        "--rewrite-time",
        type=opt.duration_s,
        metavar="SECONDS",
        help="for which equations to use are searched, wider where it is more (default 2s)",
    ),
    "fallback": Flag(
        "--no-fallback",
        action="store_false",
        help="refuse nodes without a kernel here; else others run them, and a note says who",
    ),
    "seed": Flag("--seed", type=opt.at_least(0), help="of the search (default %(default)s)"),
    "strategy": Flag("--strategy", metavar="NAME", help="of the search (default %(default)s)"),
    "settings": Flag(
        "--config", _read_settings, metavar="FILE.toml", help="settings; see configs/tune"
    ),
    "flush": Flag(
        "--flush",
        action="store_true",
        help="time every call with nothing but its inputs in the caches, whatever the model",
    ),
    "pretrained": Flag(
        "--model",
        metavar="FILE.json",
        help="start from this cost model (see autotune model train), not from the log's records",
    ),
    "dry_run": Flag(
        "--dry-run", action="store_true", help="estimate trials, time and gain; measure nothing"
    ),
}
"""By field, in the order of `autotune tune --help`: what, where, until when, how. `boards` and
`priority` are of the field `farm`."""

PYTHON_ONLY = {
    "cost_model": "there is one that is worth taking; others are for studies",
    "cache_dir": "every command has the user's own: see `options.cache_dir`",
    "on_event": "the display of the run listens",
}
"""Fields without a flag, and why."""

_DEFAULTS = {f.name: f.default for f in dataclasses.fields(TuneRequest)}


def _default(name: str) -> Any:
    return FLAGS[name].settings.get("default", _DEFAULTS.get(name))


def add(parser: argparse.ArgumentParser, *names: str, **helps: str) -> None:
    """Declare the flags of fields, in this order; `helps`: other words for some of them."""
    for name in names:
        flag = FLAGS[name]
        settings = {**flag.settings, "help": helps.get(name, flag.settings["help"])}
        if flag.name.startswith("-"):
            settings |= {"dest": name, "default": _default(name)}
        parser.add_argument(flag.name, **settings)


def request(kind: type[Request], options: argparse.Namespace, **given: Any) -> Request:
    """The request that parsed options ask for, each field by its flag, if the command has it;
    `given`: fields that the command itself sets. Raises an InputError."""
    for name in (f.name for f in dataclasses.fields(kind)):
        if name in FLAGS and name not in given and hasattr(options, name):
            read = FLAGS[name].read
            given[name] = read(options) if read else getattr(options, name)
    return kind(**given)


def chosen(options: argparse.Namespace, names: tuple[str, ...]) -> list[str]:
    """The flags among those of some fields that were given another value than their default."""
    flags = ((FLAGS[name].name, name, _default(name)) for name in names)
    return [flag for flag, name, unset in flags if getattr(options, name, unset) != unset]
