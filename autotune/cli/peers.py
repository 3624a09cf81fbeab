"""Other inference engines, timed beside a compiled model: `bench --compare`.

In: a model, compiled, and the names of other engines. Out: a table of latencies, in which every
round runs each engine once, so that a drift of the machine hits all alike. Every engine has as
many threads as the model.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cli import tables
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.runtime.model import CompiledModel

Feeds = Mapping[str, Any]
Run = Callable[[], Sequence[Any]]
"""One run; its outputs in the order of the model."""
OURS = "autotune"


def onnxruntime(path: Path, feeds: Feeds, threads: int) -> Run:
    """ONNX Runtime on its CPU provider."""
    ort = importlib.import_module("onnxruntime")
    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, dict(feeds)))


def openvino(path: Path, feeds: Feeds, threads: int) -> Run:
    """OpenVINO's CPU plugin for the least latency, in float32, for the shapes of the feeds."""
    ov = importlib.import_module("openvino")
    hints = {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    core = ov.Core()
    model = core.read_model(str(path))
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(model, "CPU", hints)
    request = compiled.create_infer_request()

    def run() -> Sequence[Any]:
        request.infer(dict(feeds))
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


ENGINES: Mapping[str, Callable[[Path, Feeds, int], Run]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}
"""Name of the engine, which is also that of its package -> what makes a run of it."""


def names(text: str) -> tuple[str, ...]:
    """An argument type: engines, separated by commas."""
    wanted = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in wanted if name not in ENGINES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown engine {unknown[0]!r}; expected some of {', '.join(ENGINES)}"
        )
    return wanted


def check_model(spec: str) -> None:
    """Raise ConfigError for what other engines can't read."""
    from autotune.frontend import ZOO_PREFIX

    if not spec.startswith(ZOO_PREFIX) and Path(spec).suffix != ".onnx":
        raise ConfigError(
            f"--compare needs the .onnx file, which other engines read too; {spec} is none"
        )


def compare(options: argparse.Namespace, model: CompiledModel) -> str:
    """A row per engine, and what could not be compared."""
    from autotune.graph.feeds import random_feeds

    feeds, threads = random_feeds(model.inputs, 0), model.image.target.threads
    runs: dict[str, Run] = {OURS: lambda: list(model.run(feeds).values())}
    notes = []
    with _as_file(options.model) as path:
        for name in options.compare:
            try:
                runs[name] = _opened(name, Path(path), feeds, threads)
            except ConfigError as missing:
                notes.append(f"note: {missing}")
    times = rounds(runs, options.repeats)
    return "\n".join([_table(runs, times), *notes])


def rounds(runs: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    """Seconds of every engine's runs, each right after another run of the same engine."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def _as_file(spec: str) -> Any:
    """A context that gives the path of the model as a file."""
    from autotune.frontend import ZOO_PREFIX

    if not spec.startswith(ZOO_PREFIX):
        return nullcontext(spec)
    return _Exported(spec.removeprefix(ZOO_PREFIX))


class _Exported:
    """A bundled model in a file that is gone afterwards."""

    def __init__(self, name: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-compare-")
        self._name = name

    def __enter__(self) -> str:
        from autotune.frontend.zoo import export_onnx

        path = str(Path(self._folder.name, "model.onnx"))
        export_onnx(self._name, path)
        return path

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _opened(name: str, path: Path, feeds: Feeds, threads: int) -> Run:
    """Raises ConfigError where the engine is not installed or refuses the model."""
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"{name} is not installed: pip install {name}")
    try:
        run = ENGINES[name](path, feeds, threads)
        run()
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"{name} does not run the model: {_first_line(error)}") from error
    return run


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def _table(runs: Mapping[str, Run], times: Mapping[str, Sequence[float]]) -> str:
    ours = statistics.median(times[OURS])
    outputs = runs[OURS]()
    rows = []
    for name, run in runs.items():
        median = statistics.median(times[name])
        rows.append(
            (
                name,
                tables.seconds(median),
                tables.seconds(min(times[name])),
                f"{median / ours:.2f}x",
                "-" if name == OURS else f"{_difference(outputs, run()):.0e}",
            )
        )
    header = ("engine", "median", "fastest", "against ours", "largest difference")
    return tables.table(header, rows, right=(1, 2, 3, 4))


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Largest difference of any output over its largest value."""
    import numpy as np

    found = 0.0
    for array, other in zip(ours, theirs, strict=True):
        wanted = np.asarray(other, dtype=np.float64)
        largest = float(np.abs(wanted).max(initial=0.0)) or 1.0
        error = np.abs(wanted - np.asarray(array, dtype=np.float64)).max(initial=0.0)
        found = max(found, float(error) / largest)
    return found
