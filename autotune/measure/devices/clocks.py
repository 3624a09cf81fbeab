"""Clocks of an NVIDIA GPU that stay where they are, whatever ends this process.

In: a GPU's place on the bus. Out: clocks locked for a while. A process of its own locks and
unlocks them: it waits for the end of its input, which comes with the end of this process, killed
or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from autotune.measure.devices.nvml import open_nvml

_LOCKED = "locked"


@contextlib.contextmanager
def held_clocks(bus: str) -> Iterator[str]:
    """Hold a GPU's clocks while this lasts; gives nothing, or why they are not held."""
    guard = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import hold; hold({bus!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # what is sent to the terminal's processes is not for it
        env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path)},
    )
    with guard:  # which ends its input, and waits
        assert guard.stdout is not None
        said = guard.stdout.readline().strip()
        yield "" if said == _LOCKED else said or "the process that would hold them ended"


def hold(bus: str) -> None:
    """Lock the clocks until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the input ends when it is time
    sensors = open_nvml(bus)
    if sensors is None:
        print("NVML is not here: pip install nvidia-ml-py", flush=True)
        return
    try:
        print(sensors.lock_clocks() or _LOCKED, flush=True)
        sys.stdin.read()
    finally:
        sensors.close()
