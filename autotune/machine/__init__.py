"""A machine as one value, and the parts that every predicted time is made of."""

from autotune.machine.value import Machine

__all__ = ["Machine"]
