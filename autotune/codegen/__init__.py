"""Code generation: programs to object code (`BACKENDS`), object code to callable addresses."""

from autotune.codegen.base import BACKENDS, Backend, EntryCall, ObjectCode
from autotune.registry import load_folder

load_folder(__name__, list(__path__))

__all__ = ["BACKENDS", "Backend", "EntryCall", "ObjectCode"]
