"""Reuse distances of the operands of tasks. In: a partition, seconds per call. Out: by task,
bytes and seconds since the memory of each operand was touched last (Mattson 1970), averaged over
the task's calls.

A run of the model touches its values one after the other, again and again; a kernel goes through
each of its values from the beginning to the end. What was used long ago is in no cache any more:
a weight, the model's input, and also the place of an output, if nothing else lay there meanwhile.
An output that is written over an input finds there what was just read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autotune.placement.memory_plan import plan_memory, storage_bytes
from autotune.placement.types import KernelCall, Partition
from autotune.types import ITEM_BYTES

ReuseDistance = tuple[str, int, float, float]
"""A part of a task's value, or of `CODE`: its name, the bytes of memory that were used and the
seconds that passed since the part was used, and what share of the value it is (0-1)."""
CODE = ""
"""In place of a value's name: the kernel's code."""

_GRAIN_BYTES = 4096
"""Bytes whose last use is known together."""
_LEAST_BYTES = 64 << 10
"""Distances below it count as none: the data are in a core's own cache."""
_LEAST_S = 1e-5
"""Shorter distances are as good as none."""

PackedWeights = Mapping[str, Mapping[str, int]]
"""By task key and name of the task's value: bytes that a run goes through of a weight, as the
task's schedule packs it."""

Times = npt.NDArray[np.float64]
"""Seconds at which each part of a block was touched."""


def reuse_distances(
    partition: Partition,
    call_s: Sequence[float],
    *,
    lend: bool = False,
    packed: PackedWeights | None = None,
) -> dict[str, tuple[ReuseDistance, ...]]:
    """By task key, the reuse distances of its values and its code, on the average of the task's
    calls, which take about `call_s`. The memory is laid out as a compiled model's, where `lend`
    and `packed` are the same; weights that the latter does not know lie as in the graph."""
    memory = _Memory(partition, lend, packed or {})
    found: dict[str, dict[tuple[str, int, float], float]] = defaultdict(lambda: defaultdict(float))
    for run in range(2):  # the first one only tells when things were touched
        for call, seconds in zip(partition.calls, call_s, strict=True):
            for name, age_bytes, age_s, share in memory.distances(call) if run else ():
                found[call.task.key][name, age_bytes, age_s] += share
            memory.touch(call, seconds)
    calls = {task.key: count for task, count in partition.weights().items()}
    return {
        key: tuple((*part, share / calls[key]) for part, share in parts.items())
        for key, parts in found.items()
    }


class _Memory:
    """Times of the last touch of every storage's parts."""

    def __init__(self, partition: Partition, lend: bool, packed: PackedWeights) -> None:
        plan = plan_memory(partition, lend=lend)
        self._partition = partition
        self._offsets = plan.offsets
        sizes = {
            name: storage_bytes(storage)
            for name, storage in partition.storages.items()
            if name not in plan.offsets
        }
        self._blocks = {"": _never(plan.arena_bytes), **{n: _never(b) for n, b in sizes.items()}}
        self._packs: dict[tuple[str, str], str] = {}
        """(key of a task, value of the graph) -> the block of what the task makes of it."""
        for call in partition.calls:
            for name, nbytes in packed.get(call.task.key, {}).items():
                value = dict(call.args)[name]
                block = f"{value} in {nbytes} bytes"
                self._packs[call.task.key, value] = block
                self._blocks[block] = _never(nbytes)
        self._code = {task.key: _never(1) for task in partition.weights()}
        self._now_s = 0.0

    def distances(self, call: KernelCall) -> Iterator[ReuseDistance]:
        """Reuse distances of all that the call uses."""
        last = np.sort(np.concatenate(list(self._blocks.values())))
        touched = self._touched(call)
        outputs = {v.name for v in call.task.by_role("output")}
        inputs = {_place(times) for name, times in touched if name not in outputs}
        for name, times in touched:
            if name in outputs and _place(times) in inputs:
                yield name, 0, _LEAST_S, 1.0
                continue
            since = (len(last) - np.searchsorted(last, times, side="right")) * _GRAIN_BYTES
            for age_bytes, which in _similar(since):
                age_s = float(np.mean(self._now_s - times[which]))
                yield name, age_bytes, _rounded(age_s), float(np.mean(which))

    def touch(self, call: KernelCall, seconds: float) -> None:
        for _, times in self._touched(call):
            times[:] = self._now_s + np.linspace(0, seconds, len(times), endpoint=False)
        self._now_s += seconds

    def _touched(self, call: KernelCall) -> list[tuple[str, Times]]:
        """(name of the task's value, times of its parts) of all that the call uses."""
        out = [(CODE, self._code[call.task.key])]
        for name, value in call.args:
            pack = self._packs.get((call.task.key, value))
            if pack is not None:
                out.append((name, self._blocks[pack]))
                continue
            placement = self._partition.placements[value]
            before, after = placement.layout.span(self._partition.graph.types[value].shape)
            item = ITEM_BYTES[self._partition.storages[placement.storage].dtype]
            first = self._offsets.get(placement.storage, 0) + (placement.offset - before) * item
            last = first + (before + after) * item
            block = placement.storage if placement.storage in self._blocks else ""
            parts = slice(first // _GRAIN_BYTES, -(-last // _GRAIN_BYTES))
            out.append((name, self._blocks[block][parts]))
        return out


def _place(times: Times) -> tuple[int, int]:
    return times.ctypes.data, len(times)


def _never(nbytes: int) -> Times:
    return np.zeros(-(-nbytes // _GRAIN_BYTES))


def _similar(nbytes: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
    """(bytes, which parts have them as their distance), rounded to powers of two."""
    powers = np.rint(np.log2(np.maximum(nbytes, 1))).astype(np.int64)
    rounded = np.where(nbytes < _LEAST_BYTES, 0, 1 << powers)
    for distance in np.unique(rounded):
        yield int(distance), rounded == distance


def _rounded(seconds: float) -> float:
    """To powers of two: there is one measurement for all that are similar."""
    return 2.0 ** round(math.log2(max(seconds, _LEAST_S)))
