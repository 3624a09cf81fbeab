"""Whether this machine can run code of a target. In: a Target. Out: nothing, or an error."""

from __future__ import annotations

from autotune.codegen.base import DEVICE_KINDS
from autotune.errors import ArtifactError
from autotune.target import Target


def check_host(target: Target, what: str) -> None:
    """Refuse code whose instructions this CPU does not have: running it would kill the process.
    What a device can run, its driver says when the code is loaded."""
    if target.kind in DEVICE_KINDS or target.triple.startswith("unknown"):
        return
    import llvmlite.binding as llvm  # only needed where code is loaded

    here, there = llvm.get_process_triple().split("-")[0], target.triple.split("-")[0]
    if here != there:
        raise ArtifactError(f"{what} is built for {there}, this CPU is {here}; compile it here")
    features = llvm.get_host_cpu_features()
    needed = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    missing = [f for f in needed if not features.get(f, False)]
    if missing:
        names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise ArtifactError(
            f"{what} is built for {target.cpu}, this CPU lacks {names}; compile it here"
        )
