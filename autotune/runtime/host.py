"""The machine that models run on: whether it can run a target's code, which cores it uses."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable

from autotune import arguments, cpu_features
from autotune.codegen.base import DEVICE_KINDS
from autotune.errors import ArtifactError, ConfigError
from autotune.target import Target, machine_of

PR_SVE_GET_VL = 51
"""Linux's number of the question for the length of scalable vectors."""
SVE_BYTES_MASK = 0xFFFF
"""Where the answer has it; flags are above."""


def check_host(target: Target, what: str) -> None:
    """Refuse code whose instructions this CPU does not have: running it would kill the process.
    What a device can run, its driver says when the code is loaded."""
    if target.is_source:
        raise ArtifactError(f"{what} is C to be compiled elsewhere; compile it for target c")
    if target.kind in DEVICE_KINDS or target.triple.startswith("unknown"):
        return
    here, there = machine_of(platform.machine()), machine_of(target.triple)
    if here != there:
        raise ArtifactError(f"{what} is built for {there}, this CPU is {here}; compile it here")
    needed = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    missing = cpu_features.missing(here, needed)
    if missing:
        names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise ArtifactError(
            f"{what} is built for {target.cpu}, this CPU lacks {names}; compile it here"
        )
    wide = scalable_bytes() if target.sve_granules else target.vector_bytes
    if wide != target.vector_bytes:
        raise ArtifactError(
            f"{what} is built for scalable vectors of {target.vector_bytes} bytes, those here "
            f"have {wide}; compile it here"
        )


def scalable_bytes() -> int:
    """Bytes of a scalable vector of Arm (SVE) in this process; 0 where Linux knows of none."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    answer = prctl(PR_SVE_GET_VL, 0, 0, 0, 0) if prctl else -1
    return int(answer) & SVE_BYTES_MASK if answer > 0 else 0


def pin(cores: Iterable[int], threads: int = 1) -> None:
    """Keep the calling thread, and those that it starts from now on, on these cores: call it
    before a model's first run. Raises ConfigError where a core is not there, where they are fewer
    than the model's threads (which would wait for each other), or where the system has no way."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("this system cannot keep threads on cores; run without pinning")
    allowed = os.sched_getaffinity(0)
    arguments.whole("threads", threads, 1)
    wanted = _numbers(cores)
    if not wanted or not wanted <= allowed:
        raise ConfigError(
            f"expected cores out of {', '.join(map(str, sorted(allowed)))}, "
            f"got {', '.join(map(str, sorted(wanted))) or 'none'}"
        )
    if len(wanted) < threads:
        raise ConfigError(f"{threads} threads need as many cores, got {len(wanted)}; name more")
    os.sched_setaffinity(0, wanted)


def _numbers(cores: object) -> set[int]:
    if isinstance(cores, str | bytes) or not isinstance(cores, Iterable):
        raise ConfigError(f"cores must be a list of numbers, got {arguments.described(cores)}")
    return {arguments.whole("every one of cores", core) for core in cores}


def crowded(threads: int) -> str:
    """A line for people where threads outnumber the cores they may use; else nothing."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    cores = len(os.sched_getaffinity(0))
    if threads <= cores:
        return ""
    few = "1 core" if cores == 1 else f"{cores} cores"
    return f"{threads} threads share {few} and wait for each other"
