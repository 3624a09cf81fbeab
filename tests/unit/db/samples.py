"""Small records for tests of the tuning log."""

from __future__ import annotations

from autotune.db.types import Record
from autotune.measure.types import MeasureResult, Status
from autotune.schedule.loops.nest import Split
from autotune.target import Target
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType
from search_spaces.params import Config


def target(threads: int = 1, cpu: str = "znver4", vector_bytes: int = 64) -> Target:
    return Target(
        name="cpu",
        kind="cpu",
        triple="x86_64-unknown-linux-gnu",
        cpu=cpu,
        features="+avx2,+fma",
        vector_bytes=vector_bytes,
        vector_registers=32,
        cores=2,
        l1_bytes=32768,
        l2_bytes=1048576,
        l3_bytes=0,
        threads=threads,
    )


def matmul(m: int = 8, k: int = 16, n: int = 32, op: str = "matmul") -> Task:
    shapes = (("i0", (m, k), "input"), ("c0", (k, n), "constant"), ("o0", (m, n), "output"))
    values = tuple(
        TaskValue(
            name=name,
            type=TensorType(dtype="float32", shape=shape),
            role=role,
            layout=Layout.dense(shape),
        )
        for name, shape, role in shapes
    )
    node = TaskNode(op=op, inputs=("i0", "c0"), outputs=("o0",))
    return Task(nodes=(node,), values=values, anchor=0)


def record(
    task: Task | None = None,
    *,
    on: Target | None = None,
    times: tuple[float, ...] = (1e-3,),
    status: Status = Status.OK,
    tile: int = 4,
) -> Record:
    """A record whose config is (tile, algorithm), in this order."""
    ok = status is Status.OK
    return Record(
        task=task or matmul(),
        target=on or target(),
        rule="matmul",
        config=Config((("tile", tile), ("algorithm", "direct"))),
        schedule=(Split(loop="i", factor=tile, outer="io", inner="ii"),),
        result=MeasureResult(
            status=status,
            times_s=times if ok else (),
            error="" if ok else "build: no registers left",
            build_s=0.25,
            run_s=0.5,
            calibration_s=1e-4,
            device="board-7",
            conditions="1980/2619 MHz 54 C 310 W",
            max_error=1e-6,
        ),
        seed=3,
        flops=8192,
        model="tiny",
        versions=(("autotune", "0.1.0"), ("llvm", "22")),
        created="2026-01-02T03:04:05+00:00",
    )
