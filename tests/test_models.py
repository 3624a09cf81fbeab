"""Whole models, compiled without tuning, against ONNX Runtime: every output within 1e-4 of its
largest value, on one thread and on two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.graph.feeds import random_feeds
from autotune.types import Array
from tests import networks

TOLERANCE = 1e-4
FAST = ("tiny", "encoder_small")
SLOW = tuple(name for name in networks.names() if name not in FAST)


def relative_error(got: Array, want: Array) -> float:
    """Largest difference over largest value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = float(np.abs(want).max())
    return float(np.abs(got.astype(np.float64) - want).max()) / scale


Reference = Callable[[Mapping[str, Array]], dict[str, Array]]


def reference(path: Path) -> Reference:
    """ONNX Runtime's outputs of inputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def check(name: str, folder: Path) -> None:
    path = folder / f"{name}.onnx"
    onnx.save(networks.network(name), str(path))
    runtime = reference(path)
    for threads in (1, 2):
        model = autotune.compile(path, threads=threads)
        feeds = random_feeds(model.inputs, seed=threads)
        want = runtime(feeds)
        got = model.run(feeds)
        assert list(got) == list(want)
        for output, array in want.items():
            assert relative_error(got[output], array) < TOLERANCE, (output, threads)


@pytest.mark.parametrize("name", FAST)
def test_a_small_model_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_model_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
