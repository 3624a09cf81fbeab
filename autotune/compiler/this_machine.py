"""The profile that this machine measured of itself, for the schedules that nobody tuned.

In: a target and a folder. Out: the machine's profile, measured the first time that it is asked for
and kept in the folder; None for a device that is not this one.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TypeGuard

from autotune.errors import ArtifactError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.runtime.host import check_host
from autotune.target import Target

_LOGGER = logging.getLogger("autotune.compile")


@functools.lru_cache(maxsize=8)
def this_machine(target: Target, folder: Path | None) -> DeviceProfile | None:
    """Takes a few seconds where nothing is kept; default schedules are then for this machine, and
    the same from then on. None where nothing can be kept: it would be measured over and over."""
    if target.kind != "cpu" or not runs_here(target) or not _keeps(folder):
        return None
    from autotune.measure.runners.local import LocalRunner

    alone = target.with_threads(1).with_accuracy("normal").with_precision("float32")
    try:
        with LocalRunner(alone, cache_dir=folder) as runner:
            profile = runner.profile()
    except DeviceError as error:
        _LOGGER.warning("schedules are for a machine in general, this one is not known: %s", error)
        return None
    return profile


def _keeps(folder: Path | None) -> TypeGuard[Path]:
    """Whether files can be made in a folder, which may have to be made itself."""
    if folder is None:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def runs_here(target: Target) -> bool:
    """Whether code for the target runs on this machine."""
    try:
        check_host(target, "the model")
    except ArtifactError:
        return False
    return True
