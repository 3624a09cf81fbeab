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
from autotune.registry import load_folder

load_folder(__name__, list(__path__))

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
