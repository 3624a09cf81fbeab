"""Schedules: tuples of steps, one file per family of steps. `STEPS` maps names to them."""

from autotune.registry import load_folder
from autotune.schedule.base import (
    STEPS,
    Schedule,
    Scheduled,
    Step,
    apply_schedule,
    schedule_from_json,
    schedule_to_json,
)

load_folder(__name__, list(__path__))

__all__ = [
    "STEPS",
    "Schedule",
    "Scheduled",
    "Step",
    "apply_schedule",
    "schedule_from_json",
    "schedule_to_json",
]
