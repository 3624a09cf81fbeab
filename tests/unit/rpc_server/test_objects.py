"""Object code built here for boards of other kinds: checked, shipped, run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autotune.codegen import BACKENDS
from autotune.compiler.choose import candidates
from autotune.machine.profile import DeviceProfile
from autotune.measure.execute import build, judge, make_case
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.process import WorkerProcess
from autotune.measure.runners.local import LocalRunner
from autotune.measure.storage import reset_output
from autotune.measure.types import Built, MeasureRequest, MeasureResult, OnResult, Status
from autotune.ops import OPS
from autotune.schedule import apply_schedule
from autotune.target import host_target, load_target
from autotune.tasks.build import build_program
from autotune.types import Task, TaskNode, freeze_attrs
from rpc_server.board.objects import HostBuilds, built_from_json, built_to_json, check_object
from rpc_server.client.board_runner import RpcRunner
from tests.unit.codegen import kernels
from tests.unit.measure import fakes, tasks
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.emulated import run_emulated

BOARDS = ("cortex-a72", "cortex-a7", "riscv64-v", "x86-64-v3")


def softmax(rows: int = 6, columns: int = 37) -> Task:
    node = TaskNode(op="softmax", inputs=("i0",), outputs=("o0",), attrs=freeze_attrs({"axis": 1}))
    shape = (rows, columns)
    values = (tasks.value("i0", "input", shape), tasks.value("o0", "output", shape))
    return Task(nodes=(node,), values=values, anchor=0)


def tuned(task: Task, name: str, threads: int = 1) -> MeasureRequest:
    """A request of the rule's default schedule for a shipped target."""
    target = load_target(name, threads)
    choice = next(iter(candidates(task, target, None)))
    return MeasureRequest(task=task, schedule=choice.schedule, target=target, seed=5)


@pytest.mark.parametrize("name", BOARDS)
def test_the_host_builds_objects_for_every_board(name: str) -> None:
    request = tuned(tasks.matmul(), name)
    built = build(request)
    check_object(built.code, request.target.triple)
    assert built_from_json(built_to_json(built), request.target.triple) == built


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "task", [tasks.conv(9, 16), tasks.matmul(13, 24, 40), softmax()], ids=lambda t: t.op
)
def test_code_for_aarch64_computes_what_numpy_does(
    task: Task, threads: int, tmp_path: Path
) -> None:
    request = tuned(task, "cortex-a72", threads)
    case = make_case(task, request.seed)
    run_emulated(request, build(request), case, tmp_path)
    output = case.output.view.copy()
    assert judge(case).error == ""
    (node,) = task.nodes
    arrays = [case.arrays[name].astype(np.float64) for name in node.inputs]
    expected = OPS.get(node.op).reference(arrays, dict(node.attrs))
    np.testing.assert_allclose(output, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda code: code[:0], "too few bytes"),
        (lambda code: b"\x7fELG" + code[4:], "relocatable ELF"),
        (lambda code: code[:16] + b"\2\0" + code[18:], "relocatable ELF"),
        (lambda code: code[:18] + b"\x3e\0" + code[20:], "expected an object for aarch64"),
        (lambda code: code + bytes(9 << 20), "at most"),
    ],
)
def test_something_else_is_refused(damage: Callable[[bytes], bytes], message: str) -> None:
    request = tuned(tasks.matmul(), "cortex-a72")
    with pytest.raises(ValueError, match=message):
        check_object(damage(build(request).code), request.target.triple)


def test_code_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        built_from_json({"code": "@@@@", "packs": []}, "aarch64-linux-gnu")


class Recorder:
    """A runner that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[MeasureRequest] = []

    def profile(self) -> DeviceProfile:
        return fakes.FakeExecutor().profile(host_target())

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        results = []
        for number, request in enumerate(requests):
            self.asked.append(request)
            results.append(MeasureResult(status=Status.OK, times_s=(1.0,), device="fake"))
            if on_result is not None:
                on_result(number, results[-1])
        return tuple(results)

    def close(self) -> None:
        return None


def test_host_builds_keep_order_and_report_what_does_not_build() -> None:
    behaviours = [fakes.GOOD, fakes.BUILD_ERROR, fakes.BUILD_CRASH, fakes.GOOD, fakes.BUILD_HANG]
    requests = tuple(fakes.request(b) for b in (*behaviours, *[fakes.GOOD] * 30))
    inner = Recorder()
    seen: list[int] = []
    worker = lambda: WorkerProcess(executor=fakes.FAKE)  # noqa: E731
    with HostBuilds(inner, builders=2, worker=worker) as runner:
        results = runner.measure(requests, lambda n, _: seen.append(n))
    assert [str(r.status) for r in results[:5]] == [
        "OK", "BUILD_ERROR", "BUILD_ERROR", "OK", "BUILD_TIMEOUT",
    ]  # fmt: skip
    assert seen == list(range(35))
    assert {r.device for r in results} == {"fake"}
    plain = [dataclasses.replace(r, built=None) for r in inner.asked]
    assert plain == [r for r in requests if r.seed == fakes.GOOD]
    assert all(isinstance(r.built, Built) for r in inner.asked)
    assert results[1].error == "step 3 is not legal"


def test_host_builds_send_as_much_at_once_as_boards_measure_at_once() -> None:
    sizes: list[int] = []

    class Counter(Recorder):
        def measure(
            self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
        ) -> tuple[MeasureResult, ...]:
            sizes.append(len(requests))
            return super().measure(requests, on_result)

    worker = lambda: WorkerProcess(executor=fakes.FAKE)  # noqa: E731
    with HostBuilds(Counter(), builders=1, worker=worker, boards=2) as runner:
        runner.measure((fakes.request(fakes.GOOD),) * 40)
    assert sizes == [32, 8]


def test_an_output_nobody_wrote_is_wrong() -> None:
    case = make_case(tasks.matmul(), 5)
    reset_output(case.output)
    assert judge(case).error


@pytest.mark.slow
def test_a_board_runs_what_the_host_built() -> None:
    target = host_target()
    choice = next(iter(candidates(tasks.conv(9, 16), target, None)))
    requests = tuple(
        MeasureRequest(task=task, schedule=schedule, target=target, timing=fakes.PATIENT, seed=5)
        for task, schedule in [(tasks.conv(9, 16), choice.schedule), (tasks.matmul(), ())]
    )
    with (
        BoardProcess(executor=DEFAULT_EXECUTOR, options=("--accept-objects",)) as board,
        HostBuilds(RpcRunner(board.url), builders=1) as runner,
    ):
        results = runner.measure(requests)
    assert [(r.status, r.error) for r in results] == [(Status.OK, "")] * 2


def test_a_worker_that_ran_foreign_code_is_replaced() -> None:
    own = fakes.request(fakes.GOOD)
    foreign = dataclasses.replace(
        own, built=Built(symbol="kernel", code=b"\0code", workspace_bytes=0)
    )
    with LocalRunner(host_target(), executor=fakes.FAKE) as runner:
        pids = [runner.measure((r,))[0].times_s for r in (own, own, foreign, own)]
    assert pids[0] == pids[1] == pids[2] != pids[3]


def products(kind: str, depth: int) -> Task:
    """A product of bytes, of extreme values too; or of float32."""
    types = {"bytes": ("uint8", "int8", "int32"), "floats": ("float32",) * 3}[kind]
    shapes = ((7, depth), (depth, 20), (7, 20))
    values = map(kernels.value, ("i0", "c0", "o0"), shapes, types)
    return kernels.task([kernels.node("matmul", "i0 c0", "o0")], *values)


@pytest.mark.parametrize(
    ("kind", "depth", "features", "instruction"),
    [
        ("bytes", 24, "+dotprod", "neon.sdot"),
        ("bytes", 20, "+dotprod,+i8mm", "neon.usdot"),
        ("bytes", 24, "+dotprod,+i8mm", "neon.usmmla"),
        ("floats", 22, "+bf16", "neon.bfdot"),
        ("floats", 24, "+bf16", "neon.bfmmla"),
    ],
)
def test_arms_products_compute_what_numpy_does(
    kind: str, depth: int, features: str, instruction: str, tmp_path: Path
) -> None:
    """Products of matrices where neighbours come in whole runs, dot products elsewhere."""
    task, target = products(kind, depth), load_target("cortex-a72").with_precision("bf16")
    target = dataclasses.replace(target, features=f"{target.features},{features}")
    choice = next(iter(candidates(task, target, None)))
    request = MeasureRequest(task=task, schedule=choice.schedule, target=target, seed=5)
    program = apply_schedule(build_program(task), choice.schedule)
    assert instruction in BACKENDS.get("llvm").source(program, target, "k")
    case = make_case(task, request.seed)
    run_emulated(request, build(request), case, tmp_path)
    arrays = [case.arrays[name].astype(np.float64) for name in ("i0", "c0")]
    expected = arrays[0] @ arrays[1]
    error = 2.0**-7 if kind == "floats" else 0.0
    worst = np.max(np.abs(case.output.view - expected))
    assert worst <= error * np.max(np.abs(expected))
