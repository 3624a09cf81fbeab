"""The roofline of a compiled model. In: its kernels and the machine's measured profile. Out: per
kernel the least time it could take, and what sets that limit.

Least time of a kernel: its algorithm's operations at the multiply-add peak, or its bytes at the
bandwidth of where they lie, whichever takes longer. The kernel's activations fill the innermost
caches, as if the kernels before had left them there; weights, which every run of the model goes
through once, lie in the smallest cache that holds all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.machine import Machine
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.machine.roofline import level_of, served
from autotune.runtime.image import LinkedKernel, ModelImage
from autotune.runtime.model import KernelTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Least seconds of one kernel call. bound: compute, weights or activations."""

    compute_s: float
    weights_s: float
    activations_s: float

    @property
    def time_s(self) -> float:
        return max(self.compute_s, self.weights_s + self.activations_s)

    @property
    def bound(self) -> str:
        if self.compute_s >= self.weights_s + self.activations_s:
            return "compute"
        return "weights" if self.weights_s > self.activations_s else "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """A kernel call's measured time beside its limit; `number`: its place in the model."""

    number: int
    kernel: LinkedKernel
    time_s: float
    limit: Limit

    @property
    def nbytes(self) -> int:
        return self.kernel.input_bytes + self.kernel.weight_bytes + self.kernel.output_bytes


def kernel_profiles(
    image: ModelImage, times: Sequence[KernelTime], profile: DeviceProfile
) -> tuple[KernelProfile, ...]:
    """One per kernel call, in order of execution."""
    machine = Machine.of(image.target, profile)
    level = level_of(machine, image.constants.nbytes)
    return tuple(
        KernelProfile(
            number=number,
            kernel=row.kernel,
            time_s=row.time_s,
            limit=limit_of(row.kernel, machine, level),
        )
        for number, row in enumerate(times)
    )


def limit_of(kernel: LinkedKernel, machine: Machine, weights: CacheLevel) -> Limit:
    """`weights`: the level that the model's weights come from."""
    threads = machine.target.threads
    moved = kernel.input_bytes + kernel.output_bytes
    moved_s = sum(
        n / moved * kernel.input_bytes / level.load_bytes_per_s
        + n / moved * kernel.output_bytes / (level.store_bytes_per_s or level.load_bytes_per_s)
        for level, n in served(machine, moved, threads)
        if n
    )
    return Limit(
        compute_s=kernel.work_flops / machine.peak_flops(kernel.algorithm) / threads,
        weights_s=kernel.weight_bytes / weights.load_bytes_per_s / threads,
        activations_s=moved_s / threads,
    )


def model_limit_s(rows: Sequence[KernelProfile]) -> float:
    """Least seconds of the whole model as it is cut into kernels and computed."""
    return sum(row.limit.time_s for row in rows)
