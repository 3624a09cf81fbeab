"""Small matrices of bytes: smmla and usmmla sum eight products an element."""

from __future__ import annotations

from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.matrix import Matrix
from search_spaces.cpu.contraction.shape import Contraction


class MatrixInt8(Matrix):
    """Exact sums of products of bytes, in int32."""

    name, code, rank, neighbours = "matrix_int8", 16, 5, 8
    reference = "Arm Architecture Reference Manual for A-profile, SMMLA, USMMLA (FEAT_I8MM)"
    feature = "+i8mm"
    error = 0.0

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        return c.item_bytes == 1 and self.exists(c, target)


ALGORITHMS.add(MatrixInt8.name, MatrixInt8())
