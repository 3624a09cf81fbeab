"""Attention by an online softmax: scores are made, weighed and summed up a block at a time."""

from __future__ import annotations

from autotune.schedule.algorithms.attention import FlashAttention
from autotune.schedule.base import Schedule
from autotune.tasks.flops import causal_offset, causal_share, task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, Algorithm


class OnlineSoftmax(Algorithm):
    """The one algorithm of the attention rule, which has its params and prior."""

    name = "attention"
    reference = "Milakov & Gimelshein 2018; Dao et al., FlashAttention, 2022"

    def label(self, schedule: Schedule) -> str:
        return self.name if any(isinstance(step, FlashAttention) for step in schedule) else ""

    def flops(self, task: Task, schedule: Schedule) -> int:
        """Without blocks of scores that a causal mask hides whole."""
        step = next(step for step in schedule if isinstance(step, FlashAttention))
        node = next((n for n in task.nodes if n.op == "causal"), None)
        if node is None:
            return task_flops(task)
        rows, keys = task.value(node.outputs[0]).type.shape[-2:]
        seen = causal_share(rows, keys, causal_offset(node), step.rows, step.keys)
        return round(task_flops(task) * seen)


ALGORITHMS.add(OnlineSoftmax.name, OnlineSoftmax())
