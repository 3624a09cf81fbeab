"""Compile a model into one file that runs without this command, with the best logged schedules."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli import flags, models, tables
from autotune.cli import options as opt
from autotune.command_line import Parser

if TYPE_CHECKING:
    from autotune.graph.int8.accuracy import Quantization
    from autotune.runtime.model import CompiledModel
    from autotune.runtime.sized import SizedModel


def arguments(parser: Parser) -> None:
    flags.add(parser, "model", "shapes", "ranges")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write (default MODEL.model beside MODEL)"
    )
    flags.add(parser, "log", *flags.TARGET, *flags.MACHINE, *flags.NUMERICS)


def accuracy_table(found: Quantization) -> str:
    """What int8 costs: a row per output, compared with float32 on the calibration samples."""
    rows = [
        (
            row.output,
            str(row.samples),
            f"{row.cosine:.6f}",
            f"{row.snr_db:.1f} dB",
            f"{row.max_error:.2%}",
            f"{row.top1:.1%}",
        )
        for row in found.outputs
    ]
    header = ("output", "samples", "cosine", "signal/noise", "largest error", "same top 1")
    lines = [tables.table(header, rows, right=(1, 2, 3, 4, 5))]
    lines.append(f"{found.contractions} convolutions and matrix products on bytes")
    lines += [f"in float32: {name} (bytes: {db:.1f} dB)" for name, db in found.kept]
    lines += [
        f"in float32: {name} ({floats_s * 1e6:.1f} us; on bytes {bytes_s * 1e6:.1f})"
        for name, (floats_s, bytes_s) in found.slower
    ]
    return "\n".join(lines)


def default_output(model: str) -> str:
    """Beside the model's file, with another ending; for a bundled model, in this folder."""
    from autotune.frontend import ZOO_PREFIX

    name = model.removeprefix(ZOO_PREFIX)
    return f"{name}{opt.SUFFIX}" if name != model else str(Path(model).with_suffix(opt.SUFFIX))


def run(options: argparse.Namespace) -> None:
    named = options.output is not None
    if not named:
        # A name that is no model's gets its own error.
        options.output = default_output(options.model) if options.model else None
        opt.check_output(options)
    model = models.compiled_whole(options)
    model.save(options.output)
    print(_summary(options.output, model))
    if not named:
        print(f"written to {options.output}, since no -o names another file")


def _summary(path: str, model: CompiledModel | SizedModel) -> str:
    """The file in a line; before it, what int8 costs."""
    from autotune.runtime.model import CompiledModel

    size = f"{path}: {Path(path).stat().st_size / 1e6:.1f} MB"
    accuracy = f"{accuracy_table(model.quantization)}\n" if model.quantization else ""
    if not isinstance(model, CompiledModel):
        count = len(model.image.table.kernels)
        return f"{accuracy}{size}, {count} kernels for all sizes of {', '.join(model.symbols)}"
    sources = Counter(kernel.source for kernel in model.image.kernels)
    chosen = ", ".join(f"{n} {source}" for source, n in sorted(sources.items()))
    return f"{accuracy}{size}, {len(model.image.kernels)} kernels ({chosen})"
