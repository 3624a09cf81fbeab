"""A candidate on a device. In: device code and the storages of its params. Out: runs and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.codegen.base import DeviceCode
from autotune.errors import BuildError
from autotune.measure.devices.base import Device, DeviceAddress
from autotune.measure.storage import GARBAGE, GuardedTensor
from autotune.measure.timing import Sample

TOGETHER = 16
"""Calls that are handed to the device at once: one by one, short kernels wait for the host."""


class DeviceKernel:
    """Loaded code with its arguments in device memory, as they were when it was made."""

    def __init__(
        self, device: Device, code: DeviceCode, storages: Mapping[str, GuardedTensor]
    ) -> None:
        """`storages`: host memory of every param, by name. Raises BuildError, DeviceError."""
        missing = [name for name in code.params if name not in storages]
        if missing:
            raise BuildError(f"{code.symbol} has params {', '.join(missing)} without storage")
        self._device, self._code = device, code
        self._module = device.load(code)
        self._places = {name: self._uploaded(storages[name]) for name in code.params}
        if code.workspace_bytes:
            memory = device.allocate(code.workspace_bytes)
            device.fill(DeviceAddress(memory=memory), code.workspace_bytes, GARBAGE)
            for name, offset in code.scratch:
                self._places[name] = DeviceAddress(memory=memory, offset_bytes=offset)
        self._launches = [(x, [self._places[a] for a in x.args]) for x in code.launches]
        self._many: Callable[[], None] | None = None

    def _uploaded(self, storage: GuardedTensor) -> DeviceAddress:
        memory = self._device.allocate(storage.block.nbytes)
        self._device.upload(DeviceAddress(memory=memory), storage.block)
        first = storage.address - storage.block.ctypes.data
        return DeviceAddress(memory=memory, offset_bytes=first)

    def launch(self) -> None:
        """Put one call into the queue."""
        for launch, places in self._launches:
            self._device.launch(self._module, launch, places)

    def fetch(self, name: str, storage: GuardedTensor) -> None:
        """A param's memory, guards included, back to the host."""
        self._device.download(DeviceAddress(memory=self._places[name].memory), storage.block)

    def run(self, calls: int) -> Sample:
        """Calls back to back, by the device's clock."""
        batches, rest = divmod(calls, TOGETHER)
        many = self._batch() if batches else self.launch
        start = self._device.mark()
        for _ in range(batches):
            many()
        for _ in range(rest):
            self.launch()
        return Sample(max(self._device.elapsed_s(start, self._device.mark()), 1e-9))

    def _batch(self) -> Callable[[], None]:
        """So many calls at once, prepared when they are first wanted."""
        if self._many is None:
            self._many = self._device.capture(self._launch_many)
        return self._many

    def _launch_many(self) -> None:
        for _ in range(TOGETHER):
            self.launch()

    def run_cold(self, calls: int) -> Sample:
        """Calls one by one, each with nothing useful in the cache."""
        wall_s = beside_s = 0.0
        for _ in range(calls):
            marks = [self._device.mark()]
            self._device.flush_cache()
            marks.append(self._device.mark())
            self.launch()
            marks.append(self._device.mark())
            wall_s += self._device.elapsed_s(marks[1], marks[2])
            beside_s += self._device.elapsed_s(marks[0], marks[1])
        return Sample(max(wall_s, 1e-9), beside_s=beside_s)
