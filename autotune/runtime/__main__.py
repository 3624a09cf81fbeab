"""Runs a compiled model on files of raw numbers, and prints milliseconds.

    python -m autotune.runtime tiny.model in0.bin -o out0.bin --repeat 100

As the exported `main.c` does: a file holds one input, dense, little-endian, in the model's order;
outputs are written the same way. Needs numpy only.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autotune.atomic_file import atomic_file
from autotune.command_line import Parser
from autotune.errors import ConfigError, FeedError, InputError
from autotune.parse_int import whole
from autotune.runtime.artifact import load
from autotune.runtime.dense import feeds_of
from autotune.runtime.model import CompiledModel


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 2 for wrong input, which one line explains."""
    try:
        _run(words)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(words: Sequence[str] | None) -> None:
    parser = Parser(prog="python -m autotune.runtime", description="run a model on files")
    parser.add_argument("model", help="a file of `autotune compile`")
    parser.add_argument("inputs", nargs="*", metavar="IN", help="a file for every input")
    parser.add_argument("-o", nargs="+", default=[], dest="outputs", metavar="OUT",
                        help="a file for every output")  # fmt: skip
    parser.add_argument("--repeat", default="1", metavar="N", help="runs (default %(default)s)")
    options = parser.parse_args(words)
    repeats = whole(options.repeat)
    if not repeats:
        raise ConfigError(f"--repeat must be a whole number from 1 on, got {options.repeat!r}")
    with load(options.model) as model:
        if not isinstance(model, CompiledModel):
            raise ConfigError(
                f"the sizes of {options.model} are open, and files of bytes do not say which they "
                "have; run it in Python: autotune.load(...).run({...})"
            )
        feeds = feeds_of(model, [_read(path) for path in options.inputs])
        if options.outputs and len(options.outputs) != len(model.outputs):
            raise FeedError(
                f"expected {len(model.outputs)} files after -o, got {len(options.outputs)}"
            )
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            results = model.run(feeds)
            times.append((time.perf_counter() - start) * 1e3)
        for path, array in zip(options.outputs, results.values(), strict=False):
            with atomic_file(path, FeedError) as file:
                file.write(np.ascontiguousarray(array).data)
    print(f"{times[0]:.3f} ms first, {statistics.median(times):.3f} ms median of {repeats}")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FeedError(f"cannot read {path}: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
