"""NVML of one GPU. In: whether clocks may be locked. Out: fixed readings."""

from __future__ import annotations

from typing import Any


class FakeNvml:
    """NVML of one GPU, which may refuse to lock clocks."""

    from cuda.bindings.nvml import ClockType, TemperatureSensors

    class NvmlError(Exception):
        """The real one asks the library for its words."""

    def __init__(self, may_lock: bool) -> None:
        self.may_lock, self.locked = may_lock, (0, 0)

    def device_get_handle_by_index_v2(self, number: int) -> int:
        return number

    def device_get_clock_info(self, _: int, kind: Any) -> int:
        return {self.ClockType.CLOCK_SM: 1980, self.ClockType.CLOCK_MEM: 3201}[kind]

    def device_get_max_clock_info(self, *_: Any) -> int:
        return 1980

    def device_get_temperature_v(self, *_: Any) -> int:
        return 41

    def device_get_power_usage(self, _: int) -> int:
        return 120_500

    def device_set_gpu_locked_clocks(self, _: int, low: int, high: int) -> None:
        if not self.may_lock:
            raise self.NvmlError("no permission")
        self.locked = (low, high)

    def device_reset_gpu_locked_clocks(self, _: int) -> None:
        self.locked = (0, 0)
