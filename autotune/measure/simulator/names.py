"""Simulators of boards by name. In: a name, a target. Out: an executor's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.measure.simulator.cores import core_of
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """What runs a target's code here that is no code of this machine. `example`: such a target."""

    executor: str
    models: str = ""
    """The executor of whole models, where there is one."""
    takes: Callable[[Target], bool]
    what: str
    example: str


def _compact(target: Target) -> bool:
    return target.is_compact


def _wasm(target: Target) -> bool:
    return target.is_wasm


_ROOM = "autotune.measure.simulator"
NAMES = {
    "unicorn": Simulator(
        executor=f"{_ROOM}.executor:UnicornExecutor",
        models="autotune.runtime.on_simulated_board:UnicornModels",
        takes=_compact, what="microcontrollers", example="cortex-m4",
    ),
    "qemu": Simulator(
        executor=f"{_ROOM}.executor:QemuExecutor",
        models="autotune.runtime.on_simulated_board:QemuModels",
        takes=_compact, what="microcontrollers", example="cortex-m4",
    ),
    "node": Simulator(
        executor=f"{_ROOM}.wasm_executor:NodeExecutor",
        takes=_wasm, what="WebAssembly", example="wasm32",
    ),
    "wasmtime": Simulator(
        executor=f"{_ROOM}.wasm_executor:WasmtimeExecutor",
        takes=_wasm, what="WebAssembly", example="wasm32",
    ),
}  # fmt: skip
SIMULATORS = {name: simulator.executor for name, simulator in NAMES.items()}
"""Executors by name."""
SERIAL = f"{_ROOM}.serial_engine:SerialExecutor"
SERIAL_MODELS = "autotune.runtime.on_simulated_board:SerialModels"
"""Executors of a board at a serial port, whose argument it is."""


def stands_for(executor: str) -> str:
    """What an executor has instead of this machine: simulated, serial, or nothing."""
    if executor in SIMULATORS.values():
        return "simulated"
    return "serial" if executor.startswith(SERIAL) else ""


def executor_of(simulator: str, target: Target) -> str:
    """The executor of a simulator for a target. Raises ConfigError where it has no such core."""
    found = NAMES[simulator]
    if not found.takes(target):
        raise ConfigError(
            f"{simulator} is for {found.what}, and target {target.name} is none; "
            f"take --target {found.example}"
        )
    if target.is_compact and simulator == "unicorn" and not core_of(target).unicorn:
        raise ConfigError(
            f"unicorn has no {core_of(target).name}; take --simulator qemu for {target.name}"
        )
    if target.is_compact:
        core_of(target)
    return found.executor
