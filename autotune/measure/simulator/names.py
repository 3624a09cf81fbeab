"""Simulators of boards by name. In: a name, a target. Out: an executor's name."""

from __future__ import annotations

from autotune.errors import ConfigError
from autotune.target import Target

SIMULATORS = {"unicorn": "autotune.measure.simulator.executor:SimulatedExecutor"}


def executor_of(simulator: str, target: Target) -> str:
    """The executor of a simulator for a target. Raises ConfigError where it has no such core."""
    if not target.is_compact:
        raise ConfigError(
            f"{simulator} simulates microcontrollers, and target {target.name} is none; "
            "take --target cortex-m4"
        )
    return SIMULATORS[simulator]
