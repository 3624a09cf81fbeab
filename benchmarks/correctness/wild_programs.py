"""Ways of `benchmarks/correctness/wild_models.py` by which a random model becomes a program:
exported, compiled by the system's C compiler, which takes no warning, and run on files.

In: a random model. Out: what runs it. `main_c` is watched by the sanitizers of addresses and of
undefined behaviour.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import autotune
from autotune.errors import ConfigError
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.runtime.model import CompiledModel
from autotune.target import load_target
from autotune.types import Array
from tests.properties.wild_models import WildModel

Runs = Callable[[Mapping[str, Array]], Mapping[str, Array]]
WARNED = ("-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror")
WATCHED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PATIENCE_S = 60.0
"""Of a compiler, and of a run."""


class ProgramError(Exception):
    """A program that does not compile, or does not run to its end."""


def program(wild: WildModel, format_: str, weights: str = "inside") -> Runs:
    """Raises what compiling a model does that is refused; its runs, ProgramError."""
    target = source_target(load_target("c")) if format_ == "c" else load_target("cpu")
    model = autotune.compile(wild.model, target=target)
    if not isinstance(model, CompiledModel):
        raise ConfigError("a model of several parts is no program")
    options = ExportOptions(format=format_, weights=weights)
    return lambda feeds: _results(model, options, feeds)


def _results(
    model: CompiledModel, options: ExportOptions, feeds: Mapping[str, Array]
) -> Mapping[str, Array]:
    given, made = (
        [f"{name}.in" for name in model.inputs],
        [f"{name}.out" for name in model.outputs],
    )
    kept = ["--weights", "model.weights"] if options.weights == "file" else []
    with tempfile.TemporaryDirectory(prefix="wild-") as folder:
        place = Path(folder)
        export_image(model.image, place, options)
        linked = {
            "c": [*WATCHED, "model.c", "-lm"],
            "static": ["libmodel.a", "-lm", "-lpthread"],
            "shared": ["-L.", "-lmodel", f"-Wl,-rpath,{place}"],
        }[options.format]
        _run(["cc", *WARNED, "main.c", *linked, "-o", "main"], place)
        for port in model.image.inputs:  # whose types are those of a program's files
            array = feeds[port.name].astype(port.type.dtype, copy=False)
            (place / f"{port.name}.in").write_bytes(array.tobytes())
        _run(["./main", *given, "-o", *made, *kept], place)
        return {
            port.name: np.fromfile(place / f"{port.name}.out", port.type.dtype).reshape(
                port.type.shape
            )
            for port in model.image.outputs
        }


def _run(command: Sequence[str], folder: Path) -> None:
    # What `main` has at its end goes with the process.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    if done.returncode:
        raise ProgramError(f"{command[0]}: {done.returncode}: {done.stderr[:400]}")


PROGRAMS: dict[str, Callable[[WildModel, int], Runs]] = {
    "main_c": lambda w, _: program(w, "c"),
    "main_static": lambda w, _: program(w, "static"),
    "main_shared": lambda w, s: program(w, "shared", ("inside", "file")[s % 2]),
}
