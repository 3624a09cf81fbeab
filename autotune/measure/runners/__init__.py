"""Runners: where candidates are measured. In: a device name and a target. Out: a Runner."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import DeviceError
from autotune.measure.builds import ExecutorBuilds
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Runner
from autotune.target import Target


def open_runner(
    device: str,
    target: Target,
    *,
    cache_dir: Path | None = None,
    builds: ExecutorBuilds | None = None,
) -> Runner:
    """The runner of this machine, 'local'; `builds`: where it builds, if not here. Boards are
    opened by `rpc_server.runners.runner_for`, which knows both. Raises DeviceError."""
    if device != "local":
        raise DeviceError(f"expected the device 'local', got {device!r}")
    return LocalRunner(target, cache_dir=cache_dir, builds=builds)
