"""Clocks, temperature and power of an NVIDIA GPU through NVML (nvidia-ml-py), where it is there.

In: a GPU's place on the bus. Out: readings; locked clocks where the user may lock them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of a GPU at one moment."""

    sm_hz: float
    memory_hz: float
    temperature_c: int
    power_w: float

    def __str__(self) -> str:
        clocks = f"{self.sm_hz / 1e6:.0f}/{self.memory_hz / 1e6:.0f} MHz"
        return f"{clocks} {self.temperature_c} C {self.power_w:.0f} W"


class Nvml:
    """One GPU's sensors. `api`: the module `pynvml`. Raises its errors."""

    def __init__(self, api: Any, bus: str) -> None:
        self._api = api
        self._handle = api.nvmlDeviceGetHandleByPciBusId(bus)
        self._locked = False

    def read(self) -> Reading:
        api, handle = self._api, self._handle
        return Reading(
            sm_hz=api.nvmlDeviceGetClockInfo(handle, api.NVML_CLOCK_SM) * 1e6,
            memory_hz=api.nvmlDeviceGetClockInfo(handle, api.NVML_CLOCK_MEM) * 1e6,
            temperature_c=int(api.nvmlDeviceGetTemperature(handle, api.NVML_TEMPERATURE_GPU)),
            power_w=api.nvmlDeviceGetPowerUsage(handle) * 1e-3,
        )

    def conditions(self) -> str:
        """A reading as text; empty where the GPU does not give one."""
        try:
            return str(self.read())
        except self._api.NVMLError:
            return ""

    def lock_clocks(self) -> str:
        """Hold the graphics clock at its highest; empty, or why that cannot be."""
        api, handle = self._api, self._handle
        try:
            top = api.nvmlDeviceGetMaxClockInfo(handle, api.NVML_CLOCK_SM)
            api.nvmlDeviceSetGpuLockedClocks(handle, top, top)
        except api.NVMLError as error:
            return str(error) or "NVML gives no reason"
        self._locked = True
        return ""

    def close(self) -> None:
        """Unlock what was locked."""
        if self._locked:
            self._api.nvmlDeviceResetGpuLockedClocks(self._handle)
            self._locked = False


def open_nvml(bus: str) -> Nvml | None:
    """The sensors of a GPU, or None: the package, NVML or the right to read is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml, bus)
    except pynvml.NVMLError:
        return None
