"""Operators, one file per family. `OPS` maps names to them."""

from autotune.ops.base import OPS, Op, compute_flops
from autotune.registry import load_folder

load_folder(__name__, list(__path__))

__all__ = ["OPS", "Op", "compute_flops"]
