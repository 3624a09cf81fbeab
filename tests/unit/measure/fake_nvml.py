"""NVML of one GPU. In: whether clocks may be locked. Out: fixed readings."""

from __future__ import annotations


class FakeNvml:
    """In the place of `pynvml`: one GPU, which may refuse to lock clocks."""

    from pynvml import NVML_CLOCK_MEM, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU

    class NVMLError(Exception):
        """The real one asks the library for its words."""

    def __init__(self, may_lock: bool) -> None:
        self.may_lock, self.locked = may_lock, (0, 0)

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
        return bus

    def nvmlDeviceGetClockInfo(self, _: str, kind: int) -> int:  # noqa: N802
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, *_: object) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetTemperature(self, *_: object) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        return 120_500

    def nvmlDeviceSetGpuLockedClocks(self, _: str, low: int, high: int) -> None:  # noqa: N802
        if not self.may_lock:
            raise self.NVMLError("no permission")
        self.locked = (low, high)

    def nvmlDeviceResetGpuLockedClocks(self, _: str) -> None:  # noqa: N802
        self.locked = (0, 0)
