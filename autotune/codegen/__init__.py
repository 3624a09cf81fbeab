"""Code generation: programs to object code (`BACKENDS`), object code to callable addresses."""

from autotune.codegen.base import (
    BACKENDS,
    DEVICE_KINDS,
    Backend,
    DeviceCode,
    EntryCall,
    Launch,
    ObjectCode,
    backend_for,
)

__all__ = [
    "BACKENDS",
    "DEVICE_KINDS",
    "Backend",
    "DeviceCode",
    "EntryCall",
    "Launch",
    "ObjectCode",
    "backend_for",
]
