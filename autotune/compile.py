"""Compile a model. In: a model, a target and a tuning log. Out: a CompiledModel, ready to run.

Only this signature is imported with the package; the compiler itself is loaded by the first call.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from autotune.db.types import Store
    from autotune.graph.feeds import Samples
    from autotune.runtime.executor import CompiledModel
    from autotune.target import Target


def compile(
    model: str | Path,
    *,
    target: str | Target = "cpu",
    log: str | Path | Store | None = None,
    threads: int = 1,
    accuracy: str = "normal",
    precision: str = "float32",
    calibration: Samples | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> CompiledModel:
    """`model` is an .onnx file or `zoo:NAME`; `shapes` fixes symbolic input dimensions.

    Every task takes its best record of this target in `log` (a path, an SQLAlchemy URL or an open
    log), else the nearest record of a similar task, else its default schedule; an empty or missing
    log is fine. `notes` of the result says which schedules had to be replaced. `threads`,
    `accuracy` (normal, or strict: no algorithm that rounds more than direct code) and `precision`
    (float32, bf16 or int8) apply unless a Target is given.

    For int8, `calibration` gives samples of the inputs: a .npz file, a folder of them, or arrays
    by input name; without it they are random. `quantization` of the result says how far its
    outputs are from those of float32 on the samples.

    Raises InputError for what the user can mend."""
    from autotune.compiler.driver import compile_model
    from autotune.target import wanted_target

    wanted = wanted_target(target, threads=threads, accuracy=accuracy, precision=precision)
    return compile_model(model, target=wanted, log=log, shapes=shapes, calibration=calibration)
