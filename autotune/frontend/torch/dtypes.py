"""Element types of PyTorch and of graphs. In: one's. Out: the other's.

Floats of 16 bits are float32 in a graph: every value of theirs is one, and nothing is rounded.
"""

from __future__ import annotations

import torch

from autotune.errors import UnsupportedOpError

HALVES = (torch.float16, torch.bfloat16)
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Element types of the real and the imaginary part of a complex tensor: two values in a graph."""
_BACK = {
    "float32": torch.float32, "float64": torch.float64, "bool": torch.bool,
    "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8,
    "uint64": torch.uint64, "uint32": torch.uint32, "uint16": torch.uint16, "uint8": torch.uint8,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _BACK.items()} | dict.fromkeys(HALVES, "float32")


def graph_dtype(dtype: torch.dtype) -> str:
    """The element type that a graph has for one of PyTorch's. Raises UnsupportedOpError."""
    if dtype not in _NAMES:
        raise UnsupportedOpError(f"elements of {dtype} are not supported")
    return _NAMES[dtype]


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's element type of a graph's."""
    return _BACK[name]
