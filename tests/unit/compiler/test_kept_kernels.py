"""Only kernels that gain at sizes of the range are built, and what cannot be built is replaced."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from onnx import helper

import autotune
from autotune.compiler import open_building, open_emission
from autotune.compiler.kept_kernels import costs_at, kept_kernels
from autotune.compiler.open_kernels import TriedKernel
from autotune.compiler.strip_lengths import drawn_values
from autotune.errors import BuildError
from autotune.sizes import ceil_div, symbol
from tests.unit.compiler.open_models import FLOAT, model_of, weight

ROWS = symbol("S", 1, 100)


def never() -> Any:
    raise BuildError("not this one")


def strips_of(length: int, seconds: float) -> TriedKernel:
    return TriedKernel(
        write=never,
        extents=(ROWS,),
        lengths=(length,),
        pieces=ceil_div(ROWS, length),
        seconds=seconds,
    )


def test_of_equal_kernels_one_is_kept() -> None:
    tried = [strips_of(n, n * 1e-6) for n in (1, 2, 3, 5, 8)]
    assert [kernel.lengths for kernel in kept_kernels(tried)] == [(1,)]


def test_what_is_kept_does_for_all_sizes_in_nearly_the_time_of_all() -> None:
    tried = [strips_of(n, (n + 0.2) * 1e-6) for n in range(1, 61)]
    kept = kept_kernels(tried)
    assert 1 < len(kept) < len(tried)
    drawn = drawn_values([ROWS])
    of_all, of_kept = (
        np.array([costs_at(kernel, drawn) for kernel in some]).min(axis=0)
        for some in (tried, kept)
    )
    assert np.isfinite(of_kept).all()
    assert (of_kept / of_all).mean() < 1.01


def test_without_a_kernel_for_all_sizes_each_is_kept() -> None:
    tried = [strips_of(n, n * 1e-6) for n in (2, 3)]
    assert kept_kernels(tried) == tried


def product() -> Any:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, {"x": (FLOAT, ["S", 24])}, ["S", 16], [weight("w", 24, 16)])


def is_right(model: Any, proto: Any) -> None:
    (initializer,) = proto.graph.initializer
    w = np.frombuffer(initializer.raw_data or b"", np.float32)
    w = w if w.size else np.array(initializer.float_data, np.float32)
    for rows in (1, 2, 3, 7, 16, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        want = x.astype(np.float64) @ w.reshape(24, 16).astype(np.float64)
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


def test_kernels_that_cannot_be_written_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled, left_out = open_building.sampled_kernels, []

    def some_fail(*args: Any) -> list[TriedKernel]:
        found = sampled(*args)
        left_out.append(kept_kernels(found)[1])
        bad = dataclasses.replace(left_out[-1], write=never, instead=iter(()))
        return [bad if kernel is left_out[-1] else kernel for kernel in found]

    monkeypatch.setattr(open_building, "sampled_kernels", some_fail)
    proto = product()
    model = autotune.compile(proto, ranges={"S": (1, 40)}, threads=1)
    assert "one program serves all of them" in model.notes[0]
    assert left_out
    is_right(model, proto)


@pytest.mark.parametrize("lost", [False, True])
def test_code_is_made_beside_the_writing(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, and here where that is lost."""
    calls = []

    def call(self: Any, header: Any, blob: bytes, *, timeout_s: float) -> Any:
        calls.append(header["command"])
        if lost:
            raise open_emission.WorkerDiedError("SIGKILL", "killed by SIGKILL")
        return original(self, header, blob, timeout_s=timeout_s)

    original = open_emission.WorkerProcess.call
    monkeypatch.setattr(open_emission, "BESIDE_FROM", 1)
    monkeypatch.setattr(open_emission.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(open_emission.WorkerProcess, "call", call)
    proto = product()
    model = autotune.compile(proto, ranges={"S": (1, 40)}, threads=1)
    assert "one program serves all of them" in model.notes[0]
    assert "emit" in calls
    is_right(model, proto)
