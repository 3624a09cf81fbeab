"""A compiled model on a device. In: a ModelImage and host arrays. Out: host arrays, and times.

Arena, weights, workspace, inputs and outputs lie in one block of device memory, made when the
model is loaded. A run copies the inputs in, launches every kernel in order, and copies the outputs
back; nothing else passes between host and device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autotune.codegen.base import DeviceCode, Launch
from autotune.errors import ArtifactError
from autotune.measure.devices.base import Device, DeviceAddress, Module
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, LinkedKernel, ModelImage
from autotune.runtime.session import NOWHERE
from autotune.types import Array

_APART = 256
"""Bytes that the blocks in a device's memory begin at multiples of: no device asks for more."""
_Step = tuple[Module, Launch, list[DeviceAddress]]


class DeviceSession:
    """An image in a device's memory."""

    def __init__(self, image: ModelImage, device: Device) -> None:
        """Raises DeviceError, BuildError where the driver refuses a kernel, ArtifactError."""
        self._image, self._device = image, device
        sizes = [image.arena_bytes, image.constants.nbytes, image.workspace_bytes]
        sizes += [port.type.nbytes for port in image.inputs]
        self._sizes = [*sizes, *image.output_bytes]
        rounded = [-(-size // _APART) * _APART for size in self._sizes]
        self._starts = [sum(rounded[:number]) for number in range(len(rounded))]
        self._pool = device.allocate(sum(rounded))
        device.fill(self._place(ARENA), image.arena_bytes, 0)
        device.upload(self._place(CONSTANTS), image.constants)
        codes = [DeviceCode.decode(code) for code in image.objects if code]
        loaded = {code.symbol: (code, device.load(code)) for code in codes}
        self._kernels = [self._steps(kernel, loaded) for kernel in image.kernels]
        kernels = self._kernels

        def launch_each() -> None:  # no method: the memory goes with the session's last reference
            for steps in kernels:
                _launch(device, steps)

        self._launch_all = device.capture(launch_each)

    def _place(self, base: int, offset: int = 0) -> DeviceAddress:
        return DeviceAddress(memory=self._pool, offset_bytes=self._starts[base] + offset)

    def _steps(
        self, kernel: LinkedKernel, loaded: dict[str, tuple[DeviceCode, Module]]
    ) -> list[_Step]:
        """The launches of one call, with the places of their buffers."""
        if kernel.symbol not in loaded:
            raise ArtifactError(
                f"{self._image.name} lacks kernel {kernel.symbol}; compile it again"
            )
        code, module = loaded[kernel.symbol]
        *params, workspace = kernel.args
        places = {n: self._place(*arg) for n, arg in zip(code.params, params, strict=True)}
        base, first = workspace
        places.update({name: self._place(base, first + at) for name, at in code.scratch})
        return [(module, launch, [places[a] for a in launch.args]) for launch in code.launches]

    def run(
        self,
        inputs: Sequence[Array],
        numbers: Sequence[int] | None = None,
        into: Mapping[int, Array] = NOWHERE,  # noqa: ARG002
    ) -> list[Array]:
        """Outputs come in fresh arrays: those of the caller get copies."""
        self._upload(inputs)
        self._launch_all()
        ports = self._image.outputs
        if numbers is not None:
            ports = tuple(ports[number] for number in numbers)
        blocks: dict[int, Array] = {}
        for base in {port.base for port in ports}:
            blocks[base] = np.empty(self._sizes[base], np.uint8)
            self._device.download(self._place(base), blocks[base])
        # Outputs may overlap in a block, but what the caller gets is one array each.
        return [port.view(blocks[port.base]).copy() for port in ports]

    def _upload(self, inputs: Sequence[Array]) -> None:
        for number, array in enumerate(inputs):
            self._device.upload(self._place(FIRST_INPUT + number), array)

    def bench(
        self, inputs: Sequence[Array], repeats: int, clock: Callable[[], float]
    ) -> tuple[tuple[float, ...], list[list[float]]]:
        """Runs with the inputs on the device already and the outputs left there."""
        self._upload(inputs)
        latencies = []
        for _ in range(2 + repeats):
            self._device.synchronize()
            start = clock()
            self._launch_all()
            self._device.synchronize()
            latencies.append(clock() - start)
        times: list[list[float]] = [[] for _ in self._kernels]
        for _ in range(repeats):
            marks = [self._device.mark()]
            for steps in self._kernels:
                _launch(self._device, steps)
                marks.append(self._device.mark())
            for row, start_mark, end in zip(times, marks, marks[1:], strict=False):
                row.append(max(self._device.elapsed_s(start_mark, end), 1e-9))
        return tuple(latencies[2:]), times


def _launch(device: Device, steps: Sequence[_Step]) -> None:
    for module, launch, places in steps:
        device.launch(module, launch, places)
