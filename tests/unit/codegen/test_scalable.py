"""Arm's scalable vectors (SVE) of a known length: vectors as wide as these, under qemu."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import cost_model
from autotune.codegen.llvm.backend import LlvmBackend, assembly_text
from autotune.errors import ArtifactError
from autotune.machine import Machine
from autotune.measure.execute import build, judge, make_case
from autotune.measure.types import MeasureRequest
from autotune.runtime import host
from autotune.schedule import apply_schedule
from autotune.target import host_target, load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.contracts.algorithm_tasks import bytes_product
from tests.contracts.test_rules import conv
from tests.needs import needs
from tests.unit.codegen.kernels import matmul, unary
from tests.unit.rpc_server.emulated import run_emulated

SVE = load_target("neoverse-v1-sve")


def default(task: Task, **chosen: int) -> MeasureRequest:
    """A request of the default schedule, or of one with other params."""
    rule = rule_for(task, SVE)
    config = cost_model.default(task, Machine.of(SVE), rule)
    items = tuple((name, chosen.get(name, value)) for name, value in config.items)
    schedule = rule.schedule(task, SVE, dataclasses.replace(config, items=items))
    return MeasureRequest(task=task, schedule=schedule, target=SVE, seed=5)


def assembly(request: MeasureRequest) -> str:
    program = apply_schedule(build_program(request.task), request.schedule)
    return assembly_text(LlvmBackend().source(program, SVE, "kernel"), SVE)


@needs("qemu", "aarch64-cc")
@pytest.mark.parametrize(
    "request_",
    [
        default(matmul(13, 64, 43), lanes=8, vectors=2, tile_w=4),
        default(conv((1, 9, 9, 24), (3, 3, 24, 20), (1, 9, 9, 20), pad=1), lanes=8),
        default(unary("softmax", (6, 37), axis=1)),
    ],
    ids=["product", "convolution", "softmax"],
)
def test_results_are_right(request_: MeasureRequest, tmp_path: Path) -> None:
    assert "\tptrue\t" in assembly(request_)
    assert "z0.s" in assembly(request_)
    case = make_case(request_.task, request_.seed)
    run_emulated(request_, build(request_), case, tmp_path)
    assert judge(case).error == ""


def test_neighbours_are_summed_by_vectors_of_128_bits() -> None:
    text = assembly(default(bytes_product(9, 20, 24)))
    assert "\tusdot\t" in text
    assert "\tusmmla\t" in assembly(default(bytes_product(9, 32, 24)))


def test_speeds_are_those_of_wider_vectors() -> None:
    narrow = Machine.of(load_target("neoverse-v1"))
    wide = Machine.of(SVE)
    assert wide.cpu.multiply_adds_per_clock == narrow.cpu.multiply_adds_per_clock / 2
    assert np.isclose(wide.profile.peak_flops, narrow.profile.peak_flops)


def test_the_prior_takes_the_narrower_vectors_whose_lanes_multiply() -> None:
    """An element in all lanes of a scalable vector takes a multiply-add's place."""
    task = matmul(784, 512, 128)
    assert cost_model.default(task, Machine.of(SVE), rule_for(task, SVE))["lanes"] == 4


def test_code_for_another_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = dataclasses.replace(
        host_target(), features="", triple="aarch64-unknown-linux-gnu", vector_bytes=32
    )
    here = dataclasses.replace(here, features="+sve")
    monkeypatch.setattr(host.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(host.cpu_features, "missing", lambda *_: [])
    monkeypatch.setattr(host, "scalable_bytes", lambda: 64)
    with pytest.raises(ArtifactError, match="scalable vectors of 32 bytes, those here have 64"):
        host.check_host(here, "the model")
    monkeypatch.setattr(host, "scalable_bytes", lambda: 32)
    host.check_host(here, "the model")
