"""Devices with their own memory. In: a target. Out: a `Device`, or a list of those found here."""

from autotune.measure.devices.base import (
    DEVICES,
    Device,
    DeviceAddress,
    DeviceFacts,
    Driver,
    Event,
    Memory,
    Module,
    open_device,
)
from autotune.registry import load_folder

load_folder(__name__, list(__path__))

__all__ = [
    "DEVICES",
    "Device",
    "DeviceAddress",
    "DeviceFacts",
    "Driver",
    "Event",
    "Memory",
    "Module",
    "open_device",
]
