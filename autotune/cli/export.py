"""Write a model as a library or an object, with its header and a program that runs it."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from autotune.cli import flags, models
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.runtime.image_file import Image
    from autotune.target import Target

GROWN = 1.1
"""Bytes of weights over those in the model's file, from which on it is said."""


def arguments(parser: Parser) -> None:
    from autotune.export.write import FORMATS, WEIGHTS, ExportOptions

    usual = ExportOptions()

    flags.add(parser, "model", "shapes", "ranges", model=opt.COMPILED_TOO)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=usual.format,
        help="shared: libmodel.so; static: libmodel.a; object: model.o; c: model.c; "
        "wasm: model.wasm with an ES module; "
        "python: model.model and a wheel that runs it with numpy alone "
        "(default %(default)s)",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument(
        "--weights",
        choices=WEIGHTS,
        default=usual.weights,
        help="in the library, or in model.weights, which is mapped (default %(default)s)",
    )
    parser.add_argument(
        "--size",
        action="store_true",
        help="no algorithm that transforms weights into more bytes; says what that should cost "
        "(for wasm by default where that is hardly anything)",
    )
    parser.add_argument(
        "--prefix",
        metavar="NAME",
        default=usual.prefix,
        help="what names in C begin with, for programs of several models (default %(default)s)",
    )
    flags.add(parser, "log", *flags.TARGET, *flags.MACHINE, *flags.NUMERICS)


def run(options: argparse.Namespace) -> None:
    from autotune.export.write import WASM, ExportOptions, check_alone, export_image
    from autotune.runtime.image_file import is_artifact

    ready = is_artifact(options.model)
    if ready and options.size:
        raise ConfigError(f"{options.model} is compiled already, which settled --size")
    if options.format == "c" and not ready:
        options.target = _source_target(options)
    if options.format == "wasm" and not ready:
        check_alone(options.threads, options.weights)
        options.target = WASM if options.target == "cpu" else options.target
        options.size = options.size or None  # a module is loaded over a network
    model = models.compiled_whole(options)
    written = export_image(
        model.image,
        options.output,
        ExportOptions(format=options.format, weights=options.weights, prefix=options.prefix),
    )
    if not ready and not options.size and (more := grown(options.model, model.image)):
        print(f"note: {more}", file=sys.stderr)
    for path in written:
        print(f"{path}: {path.stat().st_size} bytes")


def grown(path: str, image: Image) -> str:
    """What to say of weights that take a tenth more bytes than in the model's file, or more."""
    if not path.endswith(".onnx"):
        return ""
    import onnx

    own = sum(
        math.prod(w.dims) * onnx.helper.tensor_dtype_to_np_dtype(w.data_type).itemsize
        for w in onnx.load(path, load_external_data=False).graph.initializer
    )
    constants = image.constants
    taken = len(constants) if isinstance(constants, bytes | memoryview) else constants.nbytes
    if taken < GROWN * own:
        return ""
    return (
        f"weights take {taken / 1e6:.1f} MB, of {own / 1e6:.1f} MB in the model: transformed ones "
        "are faster; --size leaves them as they are, and says what that costs"
    )


def _source_target(options: argparse.Namespace) -> Target:
    """What C is written for: the target that is named, or any processor."""
    from autotune.export.write import source_target
    from autotune.target import load_target

    named = load_target("c" if options.target == "cpu" else options.target, options.threads)
    return source_target(named.with_accuracy(options.accuracy).with_precision(options.precision))
