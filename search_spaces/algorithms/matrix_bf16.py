"""Small matrices of operands rounded to bfloat16: bfmmla sums four products an element."""

from __future__ import annotations

from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.bf16 import rounds
from search_spaces.algorithms.matrix import Matrix
from search_spaces.cpu.contraction.shape import Contraction


class MatrixBf16(Matrix):
    """Products of bfloat16 values, summed in float32."""

    name, code, rank, neighbours = "matrix_bf16", 15, 6, 4
    reference = "Arm Architecture Reference Manual for A-profile, BFMMLA (FEAT_BF16)"
    feature = "+bf16"
    dtype = "bfloat16"
    error = 2.0**-7

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return rounds(task, c, target) and self.exists(c, target)


ALGORITHMS.add(MatrixBf16.name, MatrixBf16())
