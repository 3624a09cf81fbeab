"""Matrix tiles of operands rounded to bfloat16: AMX-BF16 sums 32 products an element at a time."""

from __future__ import annotations

from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.amx import Amx
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.bf16 import rounds
from search_spaces.cpu.contraction.shape import Contraction


class AmxBf16(Amx):
    """Products of bfloat16 values, summed in float32."""

    name, code, rank, neighbours = "amx_bf16", 13, 4, 2
    reference = (
        "Intel AMX: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS"
    )
    feature = "amx-bf16"
    dtype = "bfloat16"
    error = 2.0**-7

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return rounds(task, c, target) and self.exists(task, c, target)


ALGORITHMS.add(AmxBf16.name, AmxBf16())
