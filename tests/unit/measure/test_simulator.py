"""The simulated Cortex-M4: costs of instructions, right and wrong candidates, code that does not
end; a small int8 model tuned on it over a board."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import autotune
import cost_model
from autotune.errors import ConfigError, DeviceError
from autotune.machine import Machine
from autotune.measure.simulator.cores import core_of
from autotune.measure.simulator.costs import BlockCost, Counted
from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.simulator.image import linked
from autotune.measure.simulator.memory import CoreMemory
from autotune.measure.simulator.names import executor_of
from autotune.measure.simulator.qemu_engine import joined
from autotune.measure.simulator.thumb import block_cost
from autotune.measure.simulator.unicorn_engine import UnicornEngine
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.schedule import Schedule
from autotune.target import host_target, load_target
from autotune.types import Array, Task
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.tflite_models import (
    NONE,
    RELU,
    SAME,
    Operator,
    bias,
    conv,
    q,
    tflite_bytes,
    weights,
)
from tests.unit.codegen.kernels import node, task, value
from tests.unit.rpc_server.boards import BoardProcess

TARGET = load_target("cortex-m4")
CLOCK_HZ = core_of(TARGET).clock_hz
MATMUL = task(
    [node("matmul", "i0 c0", "o0")],
    value("i0", (4, 24), "uint8"),
    value("c0", (24, 10), "int8"),
    value("o0", (4, 10), "int32"),
)


@pytest.mark.parametrize(
    ("code", "instructions", "cycles"),
    [
        ("00bf", 1, 1),  # nop
        ("0868", 1, 2),  # ldr r0, [r1]
        ("08684a68", 2, 3),  # and ldr r2, [r1, #4] behind it
        ("086000bf0868", 3, 4),  # str; nop; ldr
        ("10b5", 1, 3),  # push {r4, lr}
        ("90fbf1f0", 1, 7),  # sdiv r0, r0, r1
        ("20fb0130", 1, 1),  # smlad r0, r0, r1, r3
        ("80fb0123", 1, 1),  # smull r2, r3, r0, r1
        ("d1e90023", 1, 3),  # ldrd r2, r3, [r1]
        ("b1e80c00", 1, 3),  # ldmia.w r1!, {r2, r3}
        ("51f8040f", 1, 2),  # ldr r0, [r1, #4]!
    ],
)
def test_what_instructions_take(code: str, instructions: int, cycles: int) -> None:
    assert block_cost(bytes.fromhex(code)) == BlockCost(instructions, cycles, 2)


def run(code: str, blocks: list[tuple[Array, int]], timeout_s: float = 1.0) -> list[Counted]:
    """Code behind the function that is called between kernels."""
    core = core_of(TARGET)
    image = linked(_BARE.format(code=",".join(f"0x{b:02x}" for b in bytes.fromhex(code))), core)
    memory = CoreMemory(core, blocks, range(len(blocks)))
    sections, left = UnicornEngine().run(core, image, memory, timeout_s)
    memory.take(left)
    return list(sections)


_BARE = """
__attribute__((section(".mark"), used)) void mark(void) {{}}
__attribute__((section(".entry"), used, aligned(4))) const unsigned char entry[] = {{ {code} }};
"""


@needs("cortex-m")
def test_a_loop_is_counted_turn_by_turn() -> None:
    """push {r4, lr}; mov r4, r1; blx r4; movs r1, #5; subs r1, #1; bne back; blx r4; pop: four
    taken branches, and a call, which refills."""
    before, counted = run("10b50c46a04705210139fdd1a04710bd", [])
    assert counted.instructions == 1 + 5 * 2 + 1
    assert counted.cycles == counted.instructions + 4 * 2 + 2
    assert before.instructions == 3


@needs("cortex-m")
def test_code_that_never_ends_or_touches_what_is_not_there_is_stopped() -> None:
    with pytest.raises(TimeoutError, match=r"no end after 0\.2 s"):
        run("fee7", [], 0.2)
    with pytest.raises(DeviceError, match="the simulated processor stopped at 0x8"):
        run("00de", [])
    block = np.zeros(64, np.uint8)
    run("00680022c0f88020c0f80020c0f80021c0f8002fc0f800247047", [(block, 0)])
    assert not block.any()  # within the pages of the block


def request(made: Task, schedule: Schedule | None = None) -> MeasureRequest:
    rule = rule_for(made, TARGET)
    if schedule is None:
        config = cost_model.default(made, Machine.of(TARGET), rule)
        schedule = rule.schedule(made, TARGET, config)
    return MeasureRequest(task=made, schedule=schedule, target=TARGET, timing=Timing())


@needs("cortex-m")
def test_a_candidate_is_checked_and_takes_the_same_cycles_in_every_run() -> None:
    executor, asked = UnicornExecutor(), request(MATMUL)
    built = executor.build(asked)
    first, second = (executor.check_and_time(asked, built) for _ in range(2))
    assert first.status is Status.OK, first.error
    assert first.times_s == second.times_s
    said = first.conditions.split()
    assert said[:3:2] == ["simulated:", "cycles"]
    assert float(said[1]) / CLOCK_HZ == first.times_s[0]
    plain = request(MATMUL, ())
    slow = executor.check_and_time(plain, executor.build(plain))
    assert slow.status is Status.OK
    assert slow.median_s > 1.5 * first.median_s  # one product at a time, sums in memory


@needs("cortex-m")
def test_a_wrong_result_is_found() -> None:
    executor, asked = UnicornExecutor(), request(MATMUL)
    other = request(dataclasses.replace(MATMUL, nodes=(*MATMUL.nodes,)), ())
    built = executor.build(asked)
    core = core_of(TARGET)
    returns = linked(_BARE.format(code="0x70,0x47"), core)
    broken = dataclasses.replace(built, code=returns)
    result = executor.check_and_time(other, broken)
    assert (result.status, result.times_s) == (Status.WRONG_RESULT, ())


def test_other_targets_are_refused() -> None:
    with pytest.raises(ConfigError, match="target cpu is none; take --target cortex-m4"):
        executor_of("unicorn", host_target())


@pytest.mark.slow
@needs("cortex-m")
def test_a_small_model_is_tuned_on_a_simulated_board(tmp_path: Path) -> None:
    x, a, out = q(1, 6, 6, 8), q(1, 6, 6, 12, zero=-128), q(1, 6, 6, 4)
    operators = [
        Operator(name="CONV_2D", inputs=[x, weights(12, 3, 3, 8), bias(12)], outputs=[a],
                 options=conv(1, SAME, RELU)),
        Operator(name="CONV_2D", inputs=[a, weights(4, 1, 1, 12), bias(4)], outputs=[out],
                 options=conv(1, SAME, NONE)),
    ]  # fmt: skip
    model = tflite_bytes(operators, [x], [out])
    options = ("--target", "cortex-m4", "--simulator", "unicorn")
    log = tmp_path / "m4.db"
    with BoardProcess(executor="unused:Unused", options=options) as board:
        autotune.tune(model, device=board.url, log=log, trials=12, seed=0)
    with autotune.TuningLog(log) as store:
        keys = {row["task_key"] for row in store.query()}
        records = [r for key in keys for r in store.records(key, TARGET)]
    assert len(records) >= 12
    assert all(r.result.status is Status.OK for r in records)
    assert all(r.result.device.endswith("/simulated cortex-m4") for r in records)
    cycles = [float(r.result.conditions.split()[1]) for r in records]
    assert np.allclose([r.result.median_s * CLOCK_HZ for r in records], cycles)


def test_blocks_that_are_parted_for_their_length_are_one() -> None:
    """Where nothing else goes to the second: then its cost would be counted from its beginning."""
    whole, first, second = (1000, 458, 5, 2), (1000, 400, 5, 0), (1400, 58, 5, 2)
    assert joined([second, first]) == [whole]
    more, left, short = (1400, 58, 6, 2), (1000, 400, 5, 1), (1380, 20, 5, 0)
    for apart in ([first, more], [left, second], [short, second]):
        assert joined(apart) == apart
