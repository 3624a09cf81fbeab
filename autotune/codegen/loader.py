"""Object files into this process. In: object code. Out: addresses of functions.

LLVM's objects are loaded by `ElfLibrary`, not by its MCJIT: that asks the system for memory one
section at a time, and ends the process where two of them come to lie more than 2 GiB apart, as
happens where large models or frameworks are mapped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from autotune import tile_permission
from autotune.codegen import base
from autotune.codegen.c.compiler import CLibrary
from autotune.codegen.elf.loader import ElfLibrary
from autotune.codegen.elf.objects import read_elf
from autotune.codegen.elf.symbols import TILE_SHAPES
from autotune.errors import BuildError
from autotune.target import Target
from autotune.types import Array


def load(codes: Sequence[bytes], target: Target) -> base.Library:
    """Load objects that may call each other. They must be for this machine. Raises BuildError
    where the system refuses what they need."""
    tiled = any(TILE_SHAPES.encode() in code for code in codes)
    if tiled and (reason := tile_permission.request()):
        raise BuildError(
            f"no matrix tiles here: {reason}; compile for a target without +amx-tile in features"
        )
    return CLibrary(codes, target) if target.kind == "c" else ElfLibrary(codes)


def code_in_memory(library: base.Library, code: bytes, symbol: str) -> Array:
    """The bytes of the section that holds the function `symbol` of an object, where they lie in
    this process. Valid while the library is referenced."""
    item = read_elf(code)
    found = next(s for s in item.symbols if s.name == symbol)
    start = library.address(symbol) - found.value
    size = item.sections[found.section].size
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
