"""Tasks that the contracts of algorithms are checked on: the rules' own, and of each algorithm's
test file (tests/unit/search_spaces/algorithms) those that no other algorithm needs (`TASKS`)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

import tests.unit.search_spaces.algorithms as own
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ContractionAlgorithm
from search_spaces.algorithms.gpu.base import GpuAlgorithm
from search_spaces.base import Rule
from search_spaces.cpu.contraction.shape import contraction_of, tiled_contraction
from tests.contracts.test_rules import CPU_TASKS, conv
from tests.unit.codegen.kernels import matmul, node, task, value


def bytes_product(rows: int, depth: int, columns: int) -> Task:
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (rows, depth), "uint8"),
        value("c0", (depth, columns), "int8"),
        value("o0", (rows, columns), "int32"),
    )


def _of_algorithms() -> dict[str, Task]:
    """What test files of algorithms name for them."""
    modules = (
        importlib.import_module(f"{own.__name__}.{info.name}")
        for info in pkgutil.iter_modules(own.__path__)
    )
    return {name: made for module in modules for name, made in module.TASKS.items()}


TASKS = CPU_TASKS | _of_algorithms() | {
    "conv of many": conv((1, 14, 14, 32), (3, 3, 32, 48), (1, 14, 14, 48), pad=1),
    "conv of fives": conv((1, 15, 15, 16), (3, 3, 16, 32), (1, 15, 15, 32), pad=1),
    "conv of sixes": conv((1, 12, 12, 16), (3, 3, 16, 32), (1, 12, 12, 32), pad=1),
    "images of three": conv((2, 3, 3, 17), (3, 3, 17, 48), (2, 3, 3, 48), pad=1),
    "product of many": matmul(64, 128, 128),
    "product of bytes": bytes_product(9, 16, 24),
}  # fmt: skip
"""Of CPUs."""
GPU_TASKS = {
    "conv": conv((1, 8, 8, 16), (3, 3, 16, 24), (1, 8, 8, 24), pad=1),
    "product": matmul(72, 256, 40),
    "product of bytes": bytes_product(72, 256, 40),
}


def applies(
    rule: Rule, algorithm: ContractionAlgorithm | GpuAlgorithm, made: Task, target: Target
) -> bool:
    """Whether a rule of contractions has a task of it that the algorithm computes."""
    if not rule.matches(made, target):
        return False
    described = contraction_of if target.is_gpu else tiled_contraction
    return algorithm.applies(made, described(made), target)


def pairs(
    rule: Rule,
    algorithms: Iterable[ContractionAlgorithm | GpuAlgorithm],
    tasks: dict[str, Task],
    targets: Iterable[Target],
) -> list[tuple[ContractionAlgorithm | GpuAlgorithm, str, Target]]:
    """Every algorithm with every task that it applies to, for the first target where it does."""
    return [
        (algorithm, name, found)
        for algorithm in algorithms
        for name, made in tasks.items()
        if (found := next((t for t in targets if applies(rule, algorithm, made, t)), None))
    ]
