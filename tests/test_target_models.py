"""Whole models through the backends beside LLVM, against ONNX Runtime: C by the system's compiler,
and OpenCL by the device that is here (PoCL where there is no GPU)."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import autotune
from autotune.runtime.model import random_feeds
from tests import networks
from tests.needs import param
from tests.test_models import TOLERANCE, reference, relative_error

FAST = ("tiny",)
SLOW = ("encoder_small", "squeezenet", "shufflenet", "mobilenetv2")
TARGETS = pytest.mark.parametrize("target", [param("c"), param("opencl")])


def check(name: str, target: str, folder: Path) -> None:
    path, saved = folder / f"{name}.onnx", folder / f"{name}.model"
    onnx.save(networks.network(name), str(path))
    autotune.compile(path, target=target).save(saved)
    model = autotune.load(saved)
    feeds = random_feeds(model.inputs, seed=1)
    want = reference(path)(feeds)
    for got in (model.run(feeds), model.run(feeds)):
        assert list(got) == list(want)
        for output, array in want.items():
            assert relative_error(got[output], array) < TOLERANCE, output


@TARGETS
@pytest.mark.parametrize("name", FAST)
def test_a_small_model_equals_onnx_runtime(name: str, target: str, tmp_path: Path) -> None:
    check(name, target, tmp_path)


@pytest.mark.slow
@TARGETS
@pytest.mark.parametrize("name", SLOW)
def test_a_model_equals_onnx_runtime(name: str, target: str, tmp_path: Path) -> None:
    check(name, target, tmp_path)


@TARGETS
def test_kernels_are_timed_in_their_place(target: str) -> None:
    model = autotune.compile("zoo:tiny", target=target)
    times = model.bench(3)
    assert len(times.latency_s) == 3
    assert len(times.kernels) == len(model.image.kernels)
    assert all(row.time_s > 0 for row in times.kernels)
