"""A whole model on a simulated core. In: the file of a model whose kernels are C, its inputs. Out:
code, memory with everything the model needs, and the answer to who brought it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.codegen.c.source import CSource, decoded_calls
from autotune.errors import ArtifactError, DeviceError, FeedError
from autotune.measure.frames import Frame
from autotune.measure.simulator.costs import Counted, whole
from autotune.measure.simulator.executor import (
    CoreEngine,
    QemuExecutor,
    SimulatedExecutor,
    UnicornExecutor,
)
from autotune.measure.simulator.image import image_of
from autotune.measure.simulator.memory import CoreMemory
from autotune.measure.simulator.serial_engine import SerialExecutor
from autotune.memory import zeroed_block
from autotune.runtime.image_file import read_image
from autotune.types import Array

MODEL_TIMEOUT_S = 600.0
"""Seconds of simulating a whole model."""


class SimulatedModel:
    """Raises ArtifactError for a model of other code, ConfigError for one of another core."""

    def __init__(self, data: bytes, engine: CoreEngine) -> None:
        image = read_image(data, here=False)
        if not image.target.is_source:
            raise ArtifactError(
                f"{image.name} is no model in C, which a simulated board compiles; compile the "
                "model it came from for the board (--device)"
            )
        self.image = image
        self.core = engine.core(image.target)
        self._blocks: list[Array] = []
        self._memory: CoreMemory | None = None

    def compiled(self, boot: str) -> bytes:
        """Raises BuildError."""
        *kernels, calls = self.image.objects
        sources = [CSource.decode(code) for code in kernels if code]
        return image_of(sources, decoded_calls(calls), self.core, boot)

    def memory(self, inputs: Sequence[bytes]) -> CoreMemory:
        """Raises FeedError, and BuildError where it is more than the board has."""
        image = self.image
        if [len(data) for data in inputs] != [port.type.nbytes for port in image.inputs]:
            raise FeedError(
                f"expected inputs of {[port.type.nbytes for port in image.inputs]} bytes, got "
                f"{[len(data) for data in inputs]}"
            )
        sizes = (image.arena_bytes, image.workspace_bytes)
        arena, workspace = (zeroed_block(max(size, 1)) for size in sizes)
        self._blocks = [
            arena, np.array(image.constants, np.uint8), workspace,
            *(np.frombuffer(data, np.uint8).copy() for data in inputs),
            *(zeroed_block(max(size, 1)) for size in image.output_bytes),
        ]  # fmt: skip
        self._memory = CoreMemory(
            self.core,
            [(block, 0) for block in self._blocks],
            {port.base for port in image.outputs},
        )
        return self._memory

    def frame(self, sections: Sequence[Counted], left: bytes, repeats: int) -> Frame:
        """Outputs, dense, and seconds of the core's clock; memory without weights, with the stack
        as far as it was used."""
        assert self._memory is not None
        self._memory.take(left)
        outputs = [
            np.ascontiguousarray(port.view(self._blocks[port.base])).tobytes()
            for port in self.image.outputs
        ]
        data_bytes = sum(b.nbytes for b in self._blocks) - self.image.constants.nbytes
        clock_hz = self.core.clock_hz
        header = {
            "sizes": [len(data) for data in outputs],
            "times_s": [whole(sections).cycles / clock_hz] if repeats else (),
            "kernels_s": self._kernels_s(sections) if repeats else (),
            "peak_bytes": data_bytes + self._memory.stack_used(left),
            "clock_hz": clock_hz,
        }
        return header, b"".join(outputs)

    def _kernels_s(self, sections: Sequence[Counted]) -> list[float]:
        """Seconds of each of the model's kernels, with those of the zeros written around values
        before it."""
        rows, cycles = self.image.kernels, 0
        out: list[float] = []
        calls = decoded_calls(self.image.objects[-1])
        for call, section in zip(calls, sections, strict=True):
            cycles += section.cycles
            if len(out) < len(rows) and call.symbol == rows[len(out)].symbol:
                out.append(cycles / self.core.clock_hz)
                cycles = 0
        return out


def run_simulated(executor: SimulatedExecutor, header: Mapping[str, Any], blob: bytes) -> Frame:
    """A model's answer, of one run: others take the same cycles. Raises InputError."""
    sizes = [int(size) for size in header["sizes"]]
    ends = np.cumsum(sizes).tolist()
    files = [blob[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    model = SimulatedModel(files[0], executor.engine)
    image = model.compiled(executor.boot(model.core))
    memory = model.memory(files[1:])
    try:
        sections, left = executor.engine.run(model.core, image, memory, MODEL_TIMEOUT_S)
    except TimeoutError as error:
        raise DeviceError(str(error)) from None
    return model.frame(sections[1:], left, int(header["repeats"]))


class UnicornModels(UnicornExecutor):
    """Whole models on cores of Unicorn."""

    def run_model(self, header: Mapping[str, Any], blob: bytes) -> Frame:
        """Raises InputError."""
        return run_simulated(self, header, blob)


class QemuModels(QemuExecutor):
    """Whole models on boards of QEMU."""

    def run_model(self, header: Mapping[str, Any], blob: bytes) -> Frame:
        """Raises InputError."""
        return run_simulated(self, header, blob)


class SerialModels(SerialExecutor):
    """Whole models on a board at a serial port."""

    def run_model(self, header: Mapping[str, Any], blob: bytes) -> Frame:
        """Raises InputError."""
        return run_simulated(self, header, blob)
