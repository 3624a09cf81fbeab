"""Clocks, temperature and power of an NVIDIA GPU through NVML, where it is there.

In: a GPU's number. Out: readings; locked clocks where the user may lock them.
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
    """One GPU's sensors. `api`: `cuda.bindings.nvml`."""

    def __init__(self, api: Any, number: int) -> None:
        self._api = api
        self._handle = api.device_get_handle_by_index_v2(number)
        self._locked = False

    def read(self) -> Reading:
        api, handle = self._api, self._handle
        clock, sensor = api.ClockType, api.TemperatureSensors
        return Reading(
            sm_hz=api.device_get_clock_info(handle, clock.CLOCK_SM) * 1e6,
            memory_hz=api.device_get_clock_info(handle, clock.CLOCK_MEM) * 1e6,
            temperature_c=int(api.device_get_temperature_v(handle, sensor.TEMPERATURE_GPU)),
            power_w=api.device_get_power_usage(handle) * 1e-3,
        )

    def conditions(self) -> str:
        """A reading as text; empty where the GPU does not give one."""
        try:
            return str(self.read())
        except self._api.NvmlError:
            return ""

    def lock_clocks(self) -> bool:
        """Hold the graphics clock where it is sustained; False where that is not allowed."""
        api, handle = self._api, self._handle
        try:
            top = api.device_get_max_clock_info(handle, api.ClockType.CLOCK_SM)
            api.device_set_gpu_locked_clocks(handle, top, top)
        except api.NvmlError:
            return False
        self._locked = True
        return True

    def close(self) -> None:
        """Unlock what was locked."""
        if self._locked:
            self._api.device_reset_gpu_locked_clocks(self._handle)
            self._locked = False


def open_nvml(number: int) -> Nvml | None:
    """The sensors of a GPU, or None: the package, NVML or the right to read is missing."""
    try:
        from cuda.bindings import nvml
    except ImportError:
        return None
    try:
        nvml.init_v2()
        return Nvml(nvml, number)
    except (nvml.NvmlError, RuntimeError):  # the latter where there is no library
        return None
