"""A made-up matmul rule and machine: every config has a known time, nothing is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.program.ir import Program
from autotune.schedule.base import Scheduled
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType
from cost_model.subject import Subject
from search_spaces.base import Access, Prior, Rule, TileStructure
from search_spaces.params import Config, Param
from search_spaces.space import Constraint, Rows, Space

TARGET = Target(
    name="synthetic",
    kind="cpu",
    triple="x86_64-linux-gnu",
    cpu="none",
    features="",
    vector_bytes=64,
    vector_registers=32,
    cores=4,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
)
PROFILE = DeviceProfile(
    device="synthetic",
    target=TARGET,
    peak_flops=100e9,
    levels=(
        CacheLevel(name="l1", size_bytes=32 << 10, load_bytes_per_s=400e9),
        CacheLevel(name="l2", size_bytes=1 << 20, load_bytes_per_s=100e9),
        CacheLevel(name="l3", size_bytes=32 << 20, load_bytes_per_s=50e9),
        CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=15e9),
    ),
    parallel_region_s=1e-6,
)
TILES = (1, 2, 4, 6, 8, 12, 14)


@dataclass(frozen=True, slots=True)
class Named:
    """A schedule step that stands for a config; it is never applied."""

    step: ClassVar[str] = "named"
    name: str

    def apply(self, program: Program) -> Program:
        return program


def matmul_task(m: int = 256, n: int = 256, k: int = 256) -> Task:
    def value(name: str, role: str, shape: tuple[int, ...]) -> TaskValue:
        kind = TensorType(dtype="float32", shape=shape)
        return TaskValue(name=name, type=kind, role=role, layout=Layout.dense(shape))

    values = (
        value("i0", "input", (m, k)),
        value("c0", "constant", (k, n)),
        value("o0", "output", (m, n)),
    )
    node = TaskNode(op="matmul", inputs=("i0", "c0"), outputs=("o0",))
    return Task(nodes=(node,), values=values, anchor=0)


class SyntheticRule(Rule):
    """Tiles of a matmul. `schedule` names the config: equal configs are equal schedules."""

    name = "synthetic"
    priority = 0

    def matches(self, task: Task, target: Target) -> bool:  # noqa: ARG002
        return task.op == "matmul"

    def space(self, task: Task, target: Target) -> Space:
        del task
        lanes = target.lanes()
        params = (
            Param(name="tm", choices=(16, 32, 64, 128, 256)),
            Param(name="tn", choices=(64, 128, 256)),
            Param(name="tk", choices=(16, 64, 256)),
            Param(name="rm", choices=TILES),
            Param(name="rn", choices=(16, 32, 48, 64)),
            Param(name="order", choices=("mn", "nm")),
        )

        def registers(configs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
            return configs["rm"] * configs["rn"] / lanes <= target.vector_registers

        return Space(params, (Constraint("registers", registers),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        del target
        named = Named(",".join(f"{k}={v}" for k, v in config.items))
        return Scheduled((named,), build_program(task))

    def structure(
        self, task: Task, machine: Machine, configs: Mapping[str, npt.NDArray[Any]]
    ) -> TileStructure:
        target = machine.target
        (m, k), n = task.value("i0").type.shape, task.value("o0").type.shape[1]
        ones = np.ones(len(configs["tm"]))
        return TileStructure(
            extents={"m": m, "n": n, "k": k},
            reduce_axes=frozenset("k"),
            accesses=(
                Access(buffer="i0", item_bytes=4, shape=(m, k), dims=_dims("m", "k")),
                Access(buffer="c0", item_bytes=4, shape=(k, n), dims=_dims("k", "n")),
                Access(
                    buffer="o0", item_bytes=4, shape=(m, n), dims=_dims("m", "n"), written=True
                ),
            ),
            tiles=(
                {"n": configs["tn"], "k": configs["tk"], "m": configs["tm"]},
                {"n": configs["rn"], "m": configs["rm"], "k": ones},
            ),
            flops=2 * m * n * k,
            accumulators=configs["rm"] * configs["rn"] / target.lanes(),
            vector_axis_waste=ones,
            parallel_chunks=np.ceil(m / configs["tm"]),
            unrolled=configs["rm"] * configs["rn"] / target.lanes(),
            extra={"nm": (configs["order"] == "nm").astype(np.float64)},
        )

    def prior(
        self, task: Task, machine: Machine, configs: Mapping[str, npt.NDArray[Any]]
    ) -> Prior:
        """The default is the first choice of every param, and far from the best."""
        away = [configs[p.name] != p.choices[0] for p in self.space(task, machine.target).params]
        return Prior(cycles=1.0 + sum(away), peak_cycles=1.0, means="order")


def _dims(*axes: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(((axis, 1),) for axis in axes)


def subject(task: Task | None = None) -> Subject:
    return Subject.of(task or matmul_task(), TARGET, PROFILE, SyntheticRule())


def true_seconds(of: Subject, rows: Rows) -> npt.NDArray[np.float64]:
    """The machine's hidden truth: the prior, bent where no analytical model would know."""
    configs = of.space.configs(rows)
    seconds = of.describe(rows).prior_s
    bent = 1 + 0.6 * (configs["rm"] >= 12) + 0.5 * (configs["order"] == "mn")
    return np.asarray(seconds * bent * (1 + 0.2 * np.abs(np.log2(configs["tk"] / 64))))
