"""The protocol of a worker process, and the built candidate that travels to and from its parent.

In: MeasureRequest. Out: Built, then MeasureResult. Building and running are two calls, so that one
process can build ahead while another one, alone on its cores, checks and times.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from autotune.errors import ConfigError
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.measure.frames import Frame
from autotune.measure.types import Built, MeasureRequest, MeasureResult
from autotune.target import Target
from autotune.types import Task

__all__ = [
    "DEFAULT_EXECUTOR",
    "Built",
    "Executor",
    "ModelRunner",
    "kernel_symbol",
    "load_executor",
]


class Executor(Protocol):
    """The work of a worker process. An instance lives as long as its process and may cache."""

    def build(self, request: MeasureRequest) -> Built:
        """Raises AutotuneError where the schedule is illegal or code generation fails."""
        ...

    def prepare(self, request: MeasureRequest) -> None:
        """Make inputs and reference values of the request's task, so that the time this takes is
        not counted against the first candidate's deadline."""
        ...

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult: ...

    def profile(self, target: Target) -> DeviceProfile: ...

    def facts(self, target: Target) -> MachineFacts | None:
        """What micro-benchmarks find on all cores of this process; None where there are none for
        such a device."""
        ...


@runtime_checkable
class ModelRunner(Protocol):
    """An executor that runs whole models as well."""

    def run_model(self, header: Mapping[str, Any], blob: bytes) -> Frame: ...


def kernel_symbol(task: Task) -> str:
    """The kernel's name: unique within a model, because a task is built once."""
    return "k_" + task.key.replace("-", "_").replace(".", "_")


DEFAULT_EXECUTOR = "autotune.measure.execute:NativeExecutor"


def load_executor(spec: str) -> Executor:
    """The executor named 'package.module:Class', made without arguments, or by that of
    'package.module:Class?ARGUMENT'."""
    path, _, argument = spec.partition("?")
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigError(f"an executor is named 'package.module:Class', got {spec!r}")
    made = getattr(importlib.import_module(module), name)
    executor: Executor = made(argument) if argument else made()
    return executor
