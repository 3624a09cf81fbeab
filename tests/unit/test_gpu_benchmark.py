"""benchmarks/gpus/gpu.py on an emulated GPU, beside a PyTorch that is made up: every line it
prints."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import io
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from autotune.compiler.driver import compile_graph
from autotune.errors import DeviceError
from autotune.frontend import load_model
from autotune.frontend.zoo import export_onnx
from autotune.graph.interp import run_graph
from autotune.machine.profile import DeviceProfile
from autotune.measure.execute import NativeExecutor
from autotune.measure.runners import local
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import OPEN, Sandbox
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Timing
from autotune.runtime.model import CompiledModel, random_feeds
from autotune.target import Target, load_target
from benchmarks.gpus import gpu, gpu_checks
from search_spaces.rules import rule_for
from tests.emulator.device import emulated_cuda
from tests.unit.measure.hung_cuda import emulated_profile

TARGET = load_target("sm_90a")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """PyTorch whose every call takes 50 us; ours on the emulator, in this process, and small
    problems."""
    executor = NativeExecutor()

    def measured(
        runner: LocalRunner, requests: Sequence[MeasureRequest], on_result: OnResult | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[MeasureResult, ...]:  # fmt: skip
        results = []
        for number, request in enumerate(requests):
            if stop():
                break
            executor.prepare(request)
            result = executor.check_and_time(request, executor.build(request))
            results.append(dataclasses.replace(result, device=runner.target.name))
            if on_result:
                on_result(number, results[-1])
        return tuple(results)

    monkeypatch.setattr(LocalRunner, "measure", measured)
    monkeypatch.setattr(LocalRunner, "profile", lambda runner: emulated_profile(runner.target))
    monkeypatch.setattr(gpu, "PRODUCTS", (64,))
    monkeypatch.setattr(gpu, "BERT", ((16, 64, 32),))
    monkeypatch.setattr(gpu, "ROWS", (8, 64))
    monkeypatch.setattr(gpu, "CONVOLUTIONS", ((6, 3, 8, 3, 1),))
    once = Timing(min_repeats=1, max_repeats=1, min_repeat_s=1e-6, budget_s=0.01)
    monkeypatch.setattr(gpu, "TIMING", once)
    monkeypatch.setattr(gpu, "ROUNDS", 1)
    monkeypatch.setattr(gpu, "RUNS", 1)
    monkeypatch.setattr(gpu_checks, "TIMING", once)
    monkeypatch.setattr(gpu_checks, "SIDE", 128)
    monkeypatch.setattr(gpu_checks, "MODELS", ("zoo:tiny",))
    monkeypatch.setattr(gpu_checks, "SAMPLES", 1)
    made = mock.MagicMock()
    made.cuda.Event.return_value.elapsed_time.return_value = 2.5
    with emulated_cuda():
        yield made


def options(tmp_path: Path, *parts: str, minutes: float = math.inf) -> argparse.Namespace:
    return argparse.Namespace(
        only=list(parts), trials=1, log=str(tmp_path / "gpu.db"), minutes=minutes
    )


@pytest.mark.slow
def test_first_figures_and_a_tuned_one_are_printed(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.run(options(tmp_path, "first", "matmuls"), TARGET, torch)
    out = capsys.readouterr().out
    assert "MISSED: first" not in out, out
    for said in (
        "met: 32 of 32 configs are correct", "wgmma    128: ", "bf16     128: ", "direct   128: ",
        "matmul_64x64x64 ", "of cuBLAS, wanted",
    ):  # fmt: skip
        assert said in out, f"{said!r} in {out}"
    assert "Error" not in out
    assert "not tuned" not in out  # what is timed is what was tuned


def test_every_other_kernel_is_set_against_its_own(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the tuning, which is the same for all."""

    def tuned_s(model: str, target: Target, setting: gpu.Setting) -> float:
        tasks = gpu.tasks_of(model, target)
        assert all(rule_for(task, target).name.startswith("gpu") for task in tasks)
        assert setting.trials == 1
        return 40e-6

    monkeypatch.setattr(gpu, "tuned_s", tuned_s)
    status = gpu.run(options(tmp_path, "bert", "convolutions", "rows"), TARGET, torch)
    out = capsys.readouterr().out
    for said in (
        "matmul_16x64x32_gelu", "met: 1.25x cuBLAS on average", "conv3x3s1_6x3x8_b1 ",
        "conv3x3s1_6x3x8_b16", "met: batch 16: faster than cuDNN on 1 of 1", "softmax",
        "layernormalization", "MISSED: 0% of copying, wanted 90%",
    ):  # fmt: skip
        assert said in out, f"{said!r} in {out}"
    assert status == 1
    assert "Error" not in out


def test_a_layer_is_timed_without_turning_its_image(tmp_path: Path) -> None:
    """cuDNN is given its image as it likes it; so are we."""
    path = gpu.convolution("layer", 2, (6, 3, 8, 3, 2), str(tmp_path))
    (task,) = gpu.tasks_of(path, TARGET)
    assert [node.op for node in task.nodes] == ["conv2d"]


def test_a_part_that_lacks_a_package_does_not_end_the_others(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: gpu.Setting) -> bool:
        raise ImportError("no module named torchvision")

    seen: list[float | None] = []

    def notes(setting: gpu.Setting) -> bool:
        seen.append(setting.left_s())
        return True

    monkeypatch.setitem(gpu.PARTS, "resnet18", fails)
    monkeypatch.setitem(gpu.PARTS, "board", notes)
    status = gpu.run(options(tmp_path, "resnet18", "board", minutes=2.0), TARGET, torch)
    assert status == 1
    assert "MISSED: resnet18: ImportError: no module named torchvision" in capsys.readouterr().out
    (left_s,) = seen
    assert left_s is not None
    assert 100 < left_s <= 120


def network(torch: Any) -> Any:
    """What PyTorch makes of the tiny network; its export is that network."""
    torch.onnx.export.side_effect = lambda *given, **_: export_onnx("tiny", given[2])
    graph = load_model("zoo:tiny")
    feeds = random_feeds(dict(graph.inputs), 0)
    for make in (torch.randn, torch.randint):
        make.return_value.cpu.return_value.numpy.return_value = feeds["x"]
    made = mock.MagicMock()
    made.eval.return_value.return_value.numpy.return_value = run_graph(graph, feeds)["y"]
    return made


def compiled_here(path: str, *, target: Target, log: str) -> CompiledModel:
    """In this process, which has the emulator."""
    assert Path(log).name == "gpu.db"
    return compile_graph(load_model(path), target, processes=1)


def test_a_whole_network_is_right_and_set_against_its_own(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = network(torch)
    monkeypatch.setitem(sys.modules, "torchvision", mock.MagicMock())
    sys.modules["torchvision"].models.resnet18.return_value = made
    monkeypatch.setattr(gpu.autotune, "compile", compiled_here)
    given = options(tmp_path, "resnet18", minutes=0.0)
    assert gpu.run(given, TARGET, torch) == 1
    out = capsys.readouterr().out
    assert re.search(r"met: resnet18 within \de-\d\d of PyTorch, wanted 1e-3", out), out
    assert "MISSED: 0." in out
    assert "x torch.compile, wanted 1.00x" in out
    torch.compile.assert_called_once_with(made.eval().cuda(), mode="max-autotune")
    assert torch.backends.cudnn.benchmark is True
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is False


def test_configs_are_checked_until_time_is_up(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gpu_checks.configs
    few = functools.cache(lambda target, samples: real(target, samples)[:3])
    monkeypatch.setattr(gpu_checks, "configs", few)
    assert gpu.run(options(tmp_path, "correct", minutes=0.0), TARGET, torch) == 0
    assert "time is up: 6 configs are left" in capsys.readouterr().out
    monkeypatch.setattr(gpu_checks, "AT_ONCE", 4)
    clock = itertools.count()
    monkeypatch.setattr(gpu_checks.time, "monotonic", lambda: next(clock))
    with LocalRunner(TARGET) as runner:
        assert gpu_checks.checked(runner, samples=1, until_s=0.5)
    assert "met: 4 of 4 configs are correct" in capsys.readouterr().out


@pytest.mark.parametrize("good", [True, False])
def test_a_board_that_does_not_start_is_told(
    torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, good: bool,
) -> None:  # fmt: skip
    served, tune, made = mock.Mock(), mock.Mock(), mock.Mock()
    said = "listening on 127.0.0.1:7\n" if good else "error: no GPU\n"
    served.stdout = io.StringIO(said)
    made.return_value.image.kernels = [mock.Mock(source="record")]
    monkeypatch.setattr(gpu.subprocess, "Popen", mock.Mock(return_value=served))
    monkeypatch.setattr(gpu.autotune, "tune", tune)
    monkeypatch.setattr(gpu.autotune, "compile", made)
    assert gpu.run(options(tmp_path, "board"), TARGET, torch) == (0 if good else 1)
    out = capsys.readouterr().out
    if good:
        assert tune.call_args.kwargs["device"] == "rpc://127.0.0.1:7"
        assert "met: kernels come from records of the board" in out
    else:
        assert "MISSED: the board did not start: error: no GPU" in out
    served.terminate.assert_called_once()


def test_the_bound_that_keeps_workers_from_the_device_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def profile_of(target: Target, sandbox: Sandbox) -> DeviceProfile:
        if sandbox.filter_calls:
            raise DeviceError("cuInit: OPERATING_SYSTEM")
        return emulated_profile(target)

    monkeypatch.setattr(gpu_checks, "profile_of", profile_of)
    with gpu_checks.reachable(TARGET):
        assert local.Sandbox() is OPEN
    assert local.Sandbox is Sandbox
    out = capsys.readouterr().out
    assert "a worker does not reach the device: cuInit: OPERATING_SYSTEM" in out
    assert re.findall("it does without (.*)", out) == ["filter_calls"]


def test_without_time_nothing_is_tuned(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.autotune, "tune", mock.Mock(side_effect=AssertionError))
    setting = gpu.Setting(target=TARGET, trials=1, log=str(tmp_path / "gpu.db"), torch=torch,
                          until_s=0.0)  # fmt: skip
    gpu.tune("zoo:tiny", TARGET, setting, 1)
