"""Executors of workers with an emulated GPU: one that works, one whose driver hangs for good."""

from __future__ import annotations

import contextlib
import time
from typing import Any
from unittest import mock

from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.devices.cuda import CudaDriver
from autotune.measure.devices.nvml import Nvml
from autotune.measure.execute import NativeExecutor
from autotune.measure.types import MeasureRequest
from autotune.target import Target
from tests.emulator import compiled
from tests.emulator.device import EmulatedDevice, emulated_cuda
from tests.unit.measure.fake_nvml import FakeNvml

EMULATED = "tests.unit.measure.hung_cuda:EmulatedGpu"
GONE = "tests.unit.measure.hung_cuda:GoneGpu"


class EmulatedGpu(NativeExecutor):
    """Kernels run on the emulator; sensors are there too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._patches = contextlib.ExitStack()
        self._patches.enter_context(emulated_cuda())
        sensors = Nvml(FakeNvml(may_lock=False), "0:19:0")
        mock.patch.object(EmulatedDevice, "conditions", side_effect=sensors.conditions).start()

    def prepare(self, request: MeasureRequest) -> None:
        super().prepare(request)
        compiled()  # not in the time that a kernel has

    def profile(self, target: Target) -> DeviceProfile:
        return emulated_profile(target)


def emulated_profile(target: Target) -> DeviceProfile:
    """Made up: the emulator is too slow to be measured."""
    level = CacheLevel(
        name="memory", size_bytes=1 << 30, load_bytes_per_s=1e12, copy_bytes_per_s=5e11
    )
    return DeviceProfile(
        device="emulator", target=target, peak_flops=1e13, levels=(level,),
        parallel_region_s=5e-6,
    )  # fmt: skip


class GoneGpu(EmulatedGpu):
    """The driver does not answer any more."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        mock.patch.object(CudaDriver, "open", side_effect=lambda _: time.sleep(60)).start()
