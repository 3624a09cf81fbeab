"""Tuning for all sizes of a model. In: a model with its symbols, their ranges, sizes that count.
Out: records of the samples that its one program is made from, and a report.

A kernel for all sizes is that of a sample, a small output, run in strips: so samples are what is
measured, as any task is, each as often as the sizes that count call it. `autotune.compile` finds
their records in the log; a sample without any takes what is known of samples like it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.arguments import listed
from autotune.compiler.kept_kernels import costs_at, kept_kernels
from autotune.compiler.open_building import sampled_kernels
from autotune.compiler.open_kernels import (
    OpenKernel,
    TriedKernel,
    block_kernels,
    calls_at,
    whole_kernels,
)
from autotune.compiler.open_samples import check_open_samples
from autotune.compiler.open_sizes import OpenParts
from autotune.db.types import LogStore
from autotune.defects import NO_DEFECT, described
from autotune.errors import ConfigError
from autotune.frontend.open_sizes import OpenModel
from autotune.graph.feeds import Samples
from autotune.machine.profile import DeviceProfile
from autotune.parse_int import LARGEST
from autotune.size_ranges import SizeRange, size_ranges, size_sets
from autotune.tuner.open_timing import Pieces
from autotune.tuner.request import TuneRequest
from autotune.types import Task

DRAWN = 8
"""Sets of sizes that count where none are named (chosen)."""
SHOWN = 3
"""Symbols without a range for which a refusal shows how it is given."""
NOT_WHOLE = "a program for all sizes has no one latency; see autotune bench --at"
"""Why a report has no latency."""

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCalls:
    """What a run measures."""

    weights: Mapping[Task, int]
    """Sample -> how often sizes that count call its kernel, summed over these."""
    names: Mapping[Task, str]
    """Sample -> the first call that it is of."""
    sets: Sequence[tuple[Sizes, Pieces]] = ()
    """Values of the symbols, and what is called there."""


def ranges_of(model: OpenModel, request: TuneRequest) -> dict[str, SizeRange]:
    """The range of every symbol. Raises ConfigError where one has none, FeedError of samples for
    int8 that the model does not take."""
    ranges = size_ranges({**model.limits(), **(request.ranges or {})}, model.symbols)
    missing = [name for name, allowed in ranges.items() if allowed.most >= LARGEST]
    if missing:
        raise ConfigError(
            f"sizes of {listed(missing)} have no range, which tuning for all of them needs; give "
            f"{'it' if len(missing) == 1 else 'them'} with "
            f"{' '.join(f'--range {name}=LEAST:MOST' for name in missing[:SHOWN])}"
            f"{' ...' * (len(missing) > SHOWN)}, or fix the sizes with --shape"
        )
    check_open_samples(model.inputs, ranges, request.calibration)
    return ranges


def sets_of(ranges: Mapping[str, SizeRange], request: TuneRequest) -> list[dict[str, int]]:
    """The sets of sizes that count: those that are named, or drawn by orders of magnitude."""
    if request.at:
        return size_sets(request.at, ranges)
    rng = np.random.default_rng(request.seed)
    return [{name: _drawn(allowed, rng) for name, allowed in ranges.items()} for _ in range(DRAWN)]


def _drawn(allowed: SizeRange, rng: np.random.Generator) -> int:
    exact = math.exp(rng.uniform(math.log(allowed.least), math.log(allowed.most + 1)))
    steps = min(int(exact), allowed.most) - allowed.least
    return allowed.least + max(0, steps) // allowed.step * allowed.step


def opened_parts(
    model: OpenModel,
    ranges: Mapping[str, SizeRange],
    profile: DeviceProfile,
    *,
    log: LogStore | None = None,
    calibration: Samples | None = None,
) -> OpenParts:
    """The model's tasks. Raises ConfigError where something in it must know a size."""
    try:
        return OpenParts.of(
            model, ranges, profile.target, profile, log=log, calibration=calibration
        )
    except NO_DEFECT:
        raise
    except Exception as error:  # each set of sizes can be tuned for itself
        raise ConfigError(
            f"{model.name} has no one program for all sizes ({described(error)}); tune it for "
            "fixed ones with --shape"
        ) from error


def samples_of(opened: OpenParts, sets: Sequence[Sizes], log: LogStore | None) -> SampleCalls:
    """The samples whose kernels sets of sizes call. Tasks whose kernels are not of samples, and
    sizes at which such a kernel is taken to be the fastest, have none. Raises ConfigError where
    there are no samples at all."""
    counts = [{unit.name: unit.count(sizes[unit.name]) for unit in opened.units} for sizes in sets]
    first = {call.task: call.name for call in reversed(opened.parts.calls)}
    weights: dict[Task, int] = {}
    names: dict[Task, str] = {}
    called: list[dict[Task, tuple[Task, int]]] = [{} for _ in counts]
    for task, calls in opened.parts.weights().items():
        for at, found in zip(called, _called(opened, task, counts, log), strict=False):
            if found is None:
                continue
            at[task] = sample, pieces = found
            weights[sample] = weights.get(sample, 0) + calls * pieces
            names.setdefault(sample, first[task])
    if not weights:
        raise ConfigError("no kernel of the model's one program for all sizes can be tuned")
    return SampleCalls(weights=weights, names=names, sets=tuple(zip(counts, called, strict=True)))


def _called(
    opened: OpenParts, task: Task, counts: Sequence[Sizes], log: LogStore | None
) -> list[tuple[Task, int] | None]:
    """The sample of a task that each set of sizes calls, and how often, one after the other. Empty
    where its kernels are of no samples."""
    machine, sizes, said = opened.machine_of(task), opened.sizes, list[str]()
    kernels: list[OpenKernel | TriedKernel] = []
    kernels += kept_kernels(sampled_kernels(task, machine, sizes, said, log))
    if not kernels and next(block_kernels(task, machine, sizes, said), None) is None:
        whole = whole_kernels(task, machine, sizes, said, log)
        kernels += [kernel for kernel in whole if not kernel.plain][:1]
    if not kernels:
        return []
    costs = np.array([costs_at(kernel, counts) for kernel in kernels])
    out: list[tuple[Task, int] | None] = []
    for number, values in zip(costs.argmin(axis=0), counts, strict=True):
        sample = kernels[number].sample
        out.append(sample and (sample, calls_at(kernels[number], values)))
    return out
