"""Compile a model into one file that runs without this command, with the best logged schedules."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from autotune.cli import models
from autotune.cli import options as opt


def arguments(parser: opt.Parser) -> None:
    opt.model(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")
    opt.log(parser)
    opt.target(parser)
    opt.threads(parser)
    opt.numerics(parser)


def run(options: argparse.Namespace) -> None:
    model = models.compiled(options)
    model.save(options.output)
    sources = Counter(kernel.source for kernel in model.image.kernels)
    chosen = ", ".join(f"{n} {source}" for source, n in sorted(sources.items()))
    size = Path(options.output).stat().st_size / 1e6
    print(f"{options.output}: {size:.1f} MB, {len(model.image.kernels)} kernels ({chosen})")
