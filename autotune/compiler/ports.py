"""Inputs and outputs of a model as bases of addresses. In: a partition. Out: numbers of bases."""

from __future__ import annotations

from autotune.placement.types import Partition, Storage
from autotune.runtime.image import FIRST_INPUT


def input_bases(partition: Partition) -> dict[str, int]:
    """Storage -> base, of the inputs that a kernel or an output reads."""
    return {
        partition.placements[name].storage: FIRST_INPUT + number
        for number, (name, _) in enumerate(partition.graph.inputs)
        if name in partition.placements
    }


def outputs_of(partition: Partition) -> list[Storage]:
    """The storages of outputs in the order of their bases."""
    return [s for s in partition.storages.values() if s.kind == "output"]


def output_bases(partition: Partition) -> dict[str, int]:
    """Storage -> base, behind those of all inputs."""
    first = FIRST_INPUT + len(partition.graph.inputs)
    return {s.name: first + number for number, s in enumerate(outputs_of(partition))}
