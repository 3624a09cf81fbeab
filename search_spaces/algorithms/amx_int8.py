"""Matrix tiles of bytes: AMX-INT8 sums 64 products of uint8 and int8 an element at a time."""

from __future__ import annotations

from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.amx import Amx
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.cpu.contraction.shape import Contraction


class AmxInt8(Amx):
    """Exact sums of products of bytes, in int32."""

    name, code, rank, neighbours = "amx_int8", 14, 3, 4
    reference = "Intel AMX: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBUSD"
    feature = "amx-int8"
    error = 0.0

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return c.item_bytes == 1 and self.exists(task, c, target)


ALGORITHMS.add(AmxInt8.name, AmxInt8())
