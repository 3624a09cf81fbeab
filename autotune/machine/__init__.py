"""What a device can do: one value, and what every predicted time is made of."""

from autotune.machine.value import Machine

__all__ = ["Machine"]
