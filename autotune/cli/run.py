"""Run a model once, on given or random inputs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.atomic_file import atomic_file
from autotune.cli import flags, frames, models, on_board, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.errors import ConfigError, FeedError
from autotune.types import Array, TensorType


def arguments(parser: Parser) -> None:
    flags.add(parser, "model", "shapes", "ranges", model=opt.COMPILED_TOO)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--random", action="store_true", help="seeded random inputs")
    source.add_argument(
        "--input", action="append", metavar="NAME=FILE.npy", help="an input; repeat for each"
    )
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="write the outputs there")
    parser.add_argument(
        "--seed", type=opt.at_least(0), default=0, help="of the random inputs (default 0)"
    )
    flags.add(parser, "log", *flags.TARGET)
    on_board.arguments(parser)
    frames.arguments(parser)
    opt.at(parser)
    opt.pin(parser)
    flags.add(parser, *flags.NUMERICS, "fallback")


def run(options: argparse.Namespace) -> None:
    frames.check(options)
    given = None if options.random else _read_inputs(options.input)
    if on_board.is_away(options):
        outputs = _outputs_there(options, given)
    elif given is None:
        fixed = models.compiled_whole(options)
        models.pinned(options, fixed)
        types = models.types_of(options, fixed)
        if options.state:
            outputs = frames.run(options, fixed, {}, types)
        else:
            outputs = fixed.run(_random(types, options.seed))
    else:
        model = models.compiled_or_sized(options)
        models.pinned(options, model)
        if options.state:
            outputs = _single_arrays(frames.run(options, model, given, {}))
        else:
            outputs = _single_arrays(models.run(model, given))
    if options.output:
        _write(options.output, outputs)
    rows = [
        (name, str(array.dtype), tables.shape(array.shape), *_summary(array))
        for name, array in outputs.items()
    ]
    print(tables.table(("output", "type", "shape", "min", "mean", "max"), rows, right=(3, 4, 5)))


def _outputs_there(
    options: argparse.Namespace, given: dict[str, Array] | None
) -> dict[str, Array]:
    """The outputs of a run on a board."""
    with on_board.board_of(options) as board:
        model = on_board.compiled_for(options, board)
        feeds = _random(model.inputs, options.seed) if given is None else given
        found = on_board.run_there(board, model, feeds, 0)
    print(on_board.conditions(found))
    return on_board.outputs_of(model, found)


def _random(inputs: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    from autotune.graph.feeds import random_feeds

    return random_feeds(inputs, seed)


def _single_arrays(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Outputs by name, elements of sequences by `NAME[0]` and so on; without what is not there."""
    out: dict[str, Array] = {}
    for name, value in outputs.items():
        found = {name: value}
        if isinstance(value, list):
            found = {f"{name}[{i}]": item for i, item in enumerate(value)}
        out |= {n: np.asarray(item) for n, item in found.items() if item is not None}
    return out


def _read_inputs(texts: list[str]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for text in texts:
        name, _, file = text.partition("=")
        if not name or not file:
            raise FeedError(f"expected --input NAME=FILE.npy, got {text!r}")
        if name in feeds:
            raise FeedError(f"--input of {name} is given twice; give it once")
        try:
            array = np.load(file, allow_pickle=False)
        except OSError as error:
            raise FeedError(f"cannot read {file}: {error.strerror or error}") from None
        except (ValueError, EOFError):  # numpy's words advise to unpickle it
            raise FeedError(
                f"{file} is not a .npy file of numbers; write it with numpy.save"
            ) from None
        if not isinstance(array, np.ndarray):
            raise FeedError(f"{file} holds several arrays; give one .npy file per input")
        feeds[name] = array
    return feeds


def _write(path: str, outputs: dict[str, Array]) -> None:
    with atomic_file(path, ConfigError) as file:
        np.savez(file, **outputs)  # type: ignore[arg-type]


def _summary(array: Array) -> tuple[str, str, str]:
    if array.size == 0 or array.dtype.kind in "OUS":
        return "-", "-", "-"
    return f"{array.min():.5g}", f"{array.mean():.5g}", f"{array.max():.5g}"
