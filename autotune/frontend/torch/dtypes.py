"""Element types of PyTorch and of graphs. In: one's. Out: the other's.

Floats of 16 bits are float32 in a graph: every value of theirs is one, and nothing is rounded.
"""

from __future__ import annotations

import torch

from autotune.errors import UnsupportedOpError

HALVES = (torch.float16, torch.bfloat16)
_NAMES = {
    torch.float32: "float32", torch.float64: "float64", torch.int64: "int64",
    torch.int32: "int32", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
} | dict.fromkeys(HALVES, "float32")  # fmt: skip
_BACK = {
    "float32": torch.float32, "float64": torch.float64, "int64": torch.int64,
    "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}  # fmt: skip


def graph_dtype(dtype: torch.dtype) -> str:
    """The element type that a graph has for one of PyTorch's. Raises UnsupportedOpError."""
    if dtype not in _NAMES:
        raise UnsupportedOpError(f"elements of {dtype} are not supported")
    return _NAMES[dtype]


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's element type of a graph's."""
    return _BACK[name]
