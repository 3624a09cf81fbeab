"""The least time of a task: what no machine is faster than, whatever a board says.

In: a task, its target. Out: seconds. A roofline (Williams, Waterman, Patterson 2009) at rates that
no machine comes near: times below it were not measured. Only contractions count as work: other
operators may be computed in fewer operations than they are written with.
"""

from __future__ import annotations

import functools

from autotune.errors import DeviceError
from autotune.measure.types import MeasureRequest, MeasureResult
from autotune.ops import OPS
from autotune.target import Target
from autotune.tasks.flops import node_flops
from autotune.types import Task

CALL_S = 1e-9
"""Seconds: calling a kernel takes longer, whatever it does."""
THREAD_FLOPS = 1e14
"""FLOP/s of one thread of a processor: 800 times a core's multiply-adds in float32, 8 times those
of its matrix unit in bytes, and Winograd's and Strassen's algorithms do less than a fifth."""
THREAD_BYTES = 1e13
"""Bytes per second that one thread stores: 15 times two vectors a cycle."""
DEVICE_FLOPS, DEVICE_BYTES = 1e18, 1e15
"""The same of a GPU as a whole: 100 times those of the largest, in their shortest types."""


class UnsoundError(DeviceError):
    """A board gave a result that no machine can give."""


@functools.lru_cache(maxsize=4096)
def _work(task: Task) -> tuple[int, int]:
    """(operations of contractions, bytes of the output)."""
    contractions = [n for n in task.nodes if OPS.get(n.op).kind == "contraction"]
    flops = sum(node_flops(task, node) for node in contractions)
    return flops, sum(value.type.nbytes for value in task.by_role("output"))


def least_s(task: Task, target: Target) -> float:
    """Seconds."""
    flops, stored = _work(task)
    if target.kind in ("cuda", "opencl"):
        return max(CALL_S, flops / DEVICE_FLOPS, stored / DEVICE_BYTES)
    threads = max(1, target.threads)
    return max(CALL_S, flops / threads / THREAD_FLOPS, stored / threads / THREAD_BYTES)


def check_times(request: MeasureRequest, result: MeasureResult) -> MeasureResult:
    """The result. Raises UnsoundError for times that no machine reaches."""
    if result.times_s and min(result.times_s) <= least_s(request.task, request.target):
        raise UnsoundError(
            f"it says that {request.task.key} took {min(result.times_s):.3g} s, which no machine "
            f"does within {least_s(request.task, request.target):.3g} s"
        )
    return result
