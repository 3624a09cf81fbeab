"""Cores in two simulators, which have to count the same; whole models on them, bit for bit those
of this machine; boards of them, used by the commands."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import autotune
import cost_model
from autotune.cli import execute
from autotune.errors import AutotuneError, ConfigError
from autotune.export.write import source_target
from autotune.graph.feeds import random_feeds
from autotune.machine import Machine
from autotune.measure.simulator.costs import BlockCost, BlockCosts
from autotune.measure.simulator.executor import (
    QemuExecutor,
    SimulatedExecutor,
    UnicornExecutor,
)
from autotune.measure.simulator.names import executor_of
from autotune.measure.simulator.riscv import block_cost as riscv_cost
from autotune.measure.simulator.thumb import CORTEX_M7, CORTEX_M55
from autotune.measure.simulator.thumb import block_cost as thumb_cost
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.runtime.dense import dense_bytes
from autotune.runtime.image_file import image_bytes
from autotune.runtime.on_simulated_board import QemuModels, UnicornModels
from autotune.target import load_target
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.tflite_models import (
    NONE,
    RELU,
    SAME,
    Operator,
    bias,
    conv,
    depthwise,
    q,
    tflite_bytes,
    weights,
)
from tests.unit.codegen.kernels import node, task, value
from tests.unit.rpc_server.boards import BoardProcess

PRODUCT = task(
    [node("matmul", "i0 c0", "o0")],
    value("i0", (4, 24), "uint8"),
    value("c0", (24, 10), "int8"),
    value("o0", (4, 10), "int32"),
)
CORES = [
    pytest.param("cortex-m4", marks=needs("cortex-m", "cc")),
    pytest.param("cortex-m7", marks=needs("cortex-m", "cc")),
    pytest.param("cortex-m33", marks=needs("cortex-m", "cc")),
    pytest.param("rv32imac", marks=needs("riscv32", "cc")),
]
QEMU_ONLY = ("cortex-m55", "rv32imac-v")
ALL_CORES = [
    *CORES,
    pytest.param("cortex-m55", marks=needs("cortex-m", "cc")),
    pytest.param("rv32imac-v", marks=needs("riscv32", "cc")),
]


def small_model() -> bytes:
    x, a, b, out = q(1, 7, 6, 8), q(1, 7, 6, 12, zero=-128), q(1, 4, 3, 12), q(1, 4, 3, 5)
    operators = [
        Operator(name="CONV_2D", inputs=[x, weights(12, 3, 3, 8), bias(12)], outputs=[a],
                 options=conv(1, SAME, RELU)),
        Operator(name="DEPTHWISE_CONV_2D", outputs=[b], options=depthwise(2, SAME),
                 inputs=[a, weights(1, 3, 3, 12, axis=3), bias(12)]),
        Operator(name="CONV_2D", inputs=[b, weights(5, 1, 1, 12), bias(5)], outputs=[out],
                 options=conv(1, SAME, NONE)),
    ]  # fmt: skip
    return tflite_bytes(operators, [x], [out])


def measured(executor: SimulatedExecutor, name: str) -> MeasureResult:
    target = load_target(name)
    rule = rule_for(PRODUCT, target)
    config = cost_model.default(PRODUCT, Machine.of(target), rule)
    schedule = rule.schedule(PRODUCT, target, config)
    asked = MeasureRequest(task=PRODUCT, schedule=schedule, target=target, timing=Timing())
    return executor.check_and_time(asked, executor.build(asked))


@pytest.mark.parametrize("name", CORES)
def test_two_simulators_count_the_same(name: str) -> None:
    first, second = measured(UnicornExecutor(), name), measured(QemuExecutor(), name)
    assert (first.status, second.status) == (Status.OK, Status.OK), first.error + second.error
    assert first.conditions == second.conditions
    assert first.times_s == second.times_s


@pytest.mark.parametrize("name", ALL_CORES)
def test_a_whole_model_gives_this_machines_bytes(name: str) -> None:
    """By kernel, too; where there are two simulators by both."""
    model = small_model()
    here = autotune.compile(model)
    there = autotune.compile(model, target=source_target(load_target(name)))
    feeds = random_feeds(here.inputs, 3)
    files = [image_bytes(there.image), *dense_bytes(here, feeds)]
    (wanted,) = here.run(feeds).values()
    header = {"sizes": [len(f) for f in files], "repeats": 2}
    one, many = QemuModels(), [] if name in QEMU_ONLY else [UnicornModels()]
    for executor in (one, *many):
        found, outputs = executor.run_model(header, b"".join(files))
        assert outputs == wanted.tobytes()
        assert len(found["kernels_s"]) == len(there.image.kernels)
        assert len(set(found["times_s"])) == 1
        assert found["times_s"][0] == pytest.approx(sum(found["kernels_s"]))
        assert there.image.arena_bytes < found["peak_bytes"] < 20_000


@needs("cortex-m", "cc")
def test_what_is_no_model_for_the_core_is_one_line() -> None:
    other = autotune.compile(small_model())
    file = image_bytes(other.image)
    header = {"sizes": [len(file)], "repeats": 1}
    with pytest.raises(AutotuneError, match="is no model in C, which a simulated board compiles"):
        QemuModels().run_model(header, file)
    with pytest.raises(ConfigError, match="unicorn has no Cortex-M55; take --simulator qemu"):
        executor_of("unicorn", load_target("cortex-m55"))
    strange = dataclasses.replace(load_target("cortex-m4"), cpu="cortex-x")
    with pytest.raises(ConfigError, match="no simulated core for target cortex-m4"):
        executor_of("qemu", strange)


@pytest.mark.parametrize(
    ("costs", "code", "expected"),
    [
        (riscv_cost, "03a50500", BlockCost(1, 2)),  # lw a0, 0(a1)
        (riscv_cost, "3385c502", BlockCost(1, 1)),  # mul a0, a1, a2
        (riscv_cost, "3395c502", BlockCost(1, 2)),  # mulh
        (riscv_cost, "33c5c502", BlockCost(1, 37)),  # div
        (riscv_cost, "8841", BlockCost(1, 2)),  # c.lw a0, 0(a1)
        (riscv_cost, "e31eb5fe", BlockCost(1, 1, 2)),  # bne
        (riscv_cost, "8280", BlockCost(1, 1, 1)),  # ret
        (riscv_cost, "75fd", BlockCost(1, 1, 2)),  # c.bnez
    ],
)
def test_what_instructions_of_risc_v_take(
    costs: BlockCosts, code: str, expected: BlockCost
) -> None:
    assert costs(bytes.fromhex(code)) == expected


def test_what_larger_cores_take() -> None:
    load_add = bytes.fromhex("08680130")  # ldr r0, [r1]; adds r0, #1
    assert thumb_cost(load_add, CORTEX_M7).cycles == 1
    assert thumb_cost(bytes.fromhex("08684a68"), CORTEX_M7).cycles == 2  # two loads
    vectors = "91ed001e" + "f7ee020e"  # vldrw.32 q0, [r1]; vmladava.s8 lr, q3, q1
    assert thumb_cost(bytes.fromhex(vectors), CORTEX_M55).cycles == 3


@pytest.mark.slow
@needs("cortex-m", "cc")
def test_commands_run_models_on_a_simulated_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.tflite").write_bytes(small_model())
    name = str(tmp_path / "small.tflite")
    options = ("--target", "cortex-m4", "--simulator", "qemu", "--accept-objects")
    with BoardProcess(executor="unused:Unused", options=options) as board:
        away = ["--device", board.url]
        assert execute(["bench", name, *away]) == 0
        said = capsys.readouterr().out
        assert execute(["run", name, "--random", *away, "-o", str(tmp_path / "there.npz")]) == 0
    assert "/simulated cortex-m4" in said
    assert "cycles of 120 MHz" in said
    assert "CONV_2D" in said
    assert execute(["run", name, "--random", "-o", str(tmp_path / "here.npz")]) == 0
    with np.load(tmp_path / "there.npz") as there, np.load(tmp_path / "here.npz") as here:
        assert list(there) == list(here)
        assert all(np.array_equal(there[n], here[n]) for n in here)
