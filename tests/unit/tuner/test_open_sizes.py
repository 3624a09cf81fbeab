"""Tuning for all sizes: samples are measured, and the one program is made of their records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import autotune
from autotune.compiler.driver import profile_for
from autotune.compiler.open_sizes import OpenParts
from autotune.compiler.open_strips import strip_kernels
from autotune.db.store import TuningLog
from autotune.errors import ConfigError, FeedError
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.request import CompileRequest
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import size_ranges
from autotune.target import host_target
from autotune.tuner.api import tune
from autotune.tuner.open_sizes import samples_of
from tests.unit.compiler.open_models import FLOAT, convolutions, model_of, weight

RANGES = {"N": (1, 2), "H": (2, 24)}
SHORT = np.zeros((1, 8, 23), np.float32)


def product() -> onnx.ModelProto:
    """Rows of 24 numbers, any number of them."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    inputs: dict[str, tuple[int, list[Any]]] = {"x": (FLOAT, ["N", "H", 24])}
    return model_of(nodes, inputs, ["N", "H", 48], [weight("w", 24, 48)])


def opened(proto: onnx.ModelProto, measured: Path) -> OpenParts:
    """Its tasks, on this machine as a run sees it."""
    model = open_model(proto)
    assert not hasattr(model, "nodes")
    target = host_target()
    profile = profile_for(CompileRequest(proto, cache_dir=measured), target)
    return OpenParts.of(model, size_ranges(RANGES, ("N", "H")), target, profile)


def test_samples_weigh_what_the_sizes_that_count_call(measured: Path) -> None:
    parts = opened(product(), measured)
    sets = [{"N": 1, "H": 24}, {"N": 2, "H": 20}]
    found = samples_of(parts, sets, None)
    rows = {
        sample: math.prod(sample.by_role("output")[0].type.shape[:-1]) * calls
        for sample, calls in found.weights.items()
    }
    assert sum(rows.values()) >= 24 + 40
    assert sum(rows.values()) < 1.5 * (24 + 40)
    assert set(found.names) == set(found.weights)


def test_kernels_take_the_records_of_their_samples(tmp_path: Path, measured: Path) -> None:
    log, at = tmp_path / "tuning.db", {"N": (1,), "H": (24,)}
    report = tune(product(), log=log, cache_dir=measured, ranges=RANGES, at=at, trials=6)
    assert report.measured == 6 or "near its limit" in report.reason
    assert report.latency is None
    assert "autotune bench --at" in report.no_latency
    parts = opened(product(), measured)
    (task,) = parts.parts.weights()
    with TuningLog(log, read_only=True) as store:
        samples = {report_of.task: store.best(report_of.task.key, host_target())
                   for report_of in report.tasks}  # fmt: skip
        kernels = strip_kernels(task, parts.machine_of(task), parts.sizes, [], store)
    used = {kernel.sample: kernel for kernel in kernels}
    for sample, record in samples.items():
        assert record is not None
        assert used[sample].written().schedule == record.schedule
        assert used[sample].seconds == record.result.median_s


def test_a_tuned_program_equals_onnx_runtime(tmp_path: Path, measured: Path) -> None:
    log, proto = tmp_path / "tuning.db", product()
    tune(proto, log=log, cache_dir=measured, ranges=RANGES, trials=8)
    model = autotune.compile(proto, log=log, ranges=RANGES, cache_dir=measured)
    assert isinstance(model, SizedModel)
    assert "one program serves all of them" in model.notes[0]
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, h in ((1, 2), (1, 3), (2, 7), (2, 24)):
        x = np.random.default_rng(h).standard_normal((n, h, 24)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"at": {"N": (1,), "H": (25,)}, "ranges": RANGES}, FeedError, "the range is 2 to 24"),
        ({"at": {"H": (24,)}, "ranges": RANGES}, ConfigError, "sizes must be given for each of"),
        ({"at": {"H": (24,)}}, ConfigError, "have no range"),
        ({}, ConfigError, "give them with --range N=LEAST:MOST --range H=LEAST:MOST, or fix"),
        ({"ranges": {"H": (2, 24)}}, ConfigError, "sizes of N have no range"),
        ({"ranges": {"K": (2, 24)}}, ConfigError, "a range is given for 'K'"),
        ({"at": {"H": ()}, "ranges": RANGES}, ConfigError, "must be sizes like"),
        ({"at": {"H": 3}, "ranges": RANGES}, ConfigError, "must be sizes like"),
        (
            {"ranges": RANGES, "precision": "int8", "calibration": [{"x": SHORT}]},
            FeedError,
            "x must be",
        ),
        (
            {"shapes": {"x": (1, 4, 24)}, "at": {"H": (24,)}},
            ConfigError,
            "--at is for open sizes",
        ),
    ],
)
def test_wrong_sizes_are_one_line(
    options: dict[str, object], error: type[Exception], why: str, tmp_path: Path, measured: Path
) -> None:
    log = tmp_path / "tuning.db"
    with pytest.raises(error, match=why):
        tune(product(), log=log, cache_dir=measured, **options)  # type: ignore[arg-type]
    assert not log.exists()


def test_elements_of_a_sample_have_places_of_their_own(measured: Path) -> None:
    """Strips may be longer than the sizes at which memory is taken to lie."""
    model, ranges = open_model(convolutions()), {"N": (1, 2), "H": (4, 64, 4), "W": (4, 64, 4)}
    assert not isinstance(model, Graph)
    allowed = size_ranges(ranges, model.symbols)
    target = host_target()
    profile = profile_for(CompileRequest(convolutions(), cache_dir=measured), target)
    parts = OpenParts.of(model, allowed, target, profile)
    found = samples_of(parts, [{"N": 1, "H": 64, "W": 64}, {"N": 2, "H": 16, "W": 60}], None)
    longest = 0
    for sample in found.weights:
        for value in sample.by_role("input") + sample.by_role("output"):
            shape = value.type.shape
            places = sum(
                np.arange(extent).reshape(-1, *[1] * (len(shape) - axis - 1)) * stride
                for axis, (extent, stride) in enumerate(
                    zip(shape, value.layout.strides, strict=True)
                )
            )
            assert np.unique(places).size == value.type.size
            longest = max(longest, *shape[1:-1], 0)
    assert longest > allowed["W"].middle
