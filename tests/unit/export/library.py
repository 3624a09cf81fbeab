"""An exported shared library, loaded and called as a C program would. In: a path. Out: calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autotune.types import Array


class Tensor(ctypes.Structure):
    """`model_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
        ("rank", ctypes.c_int32),
    )


class Range(ctypes.Structure):
    """`model_range`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("least", ctypes.c_int64),
        ("most", ctypes.c_int64),
        ("step", ctypes.c_int64),
    )


class Model:
    """The functions of a library."""

    def __init__(self, path: Path, prefix: str = "model") -> None:
        self.c = ctypes.CDLL(str(path))
        self._prefix = prefix
        for side in ("input", "output"):
            self.function(side).restype = ctypes.POINTER(Tensor)
        for name in ("error", "about"):
            self.function(name).restype = ctypes.c_char_p
        self.function("memory_bytes").restype = ctypes.c_size_t
        self.function("create_in").argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
        )  # fmt: skip

    def function(self, name: str) -> ctypes._CFuncPtr:
        return getattr(self.c, f"{self._prefix}_{name}")

    def tensors(self, side: str) -> list[Tensor]:
        count = self.function(f"{side}s")()
        return [self.function(side)(n).contents for n in range(count)]

    def create(self, weights: bytes | None = None) -> tuple[int, ctypes.c_void_p]:
        made = ctypes.c_void_p(1)
        code = self.function("create")(weights, ctypes.byref(made))
        return code, made

    def run(self, instance: ctypes.c_void_p, inputs: Sequence[Array]) -> list[Array]:
        """Outputs, as numpy has their types."""
        outputs = []
        for tensor in self.tensors("output"):
            shape = tuple(tensor.shape[: tensor.rank])
            outputs.append(np.empty(shape, tensor.type.decode()))
        code = self.function("run")(instance, pointers(inputs), pointers(outputs))
        assert code == 0, self.function("error")(code)
        return outputs

    def destroy(self, instance: ctypes.c_void_p) -> None:
        self.function("destroy")(instance)


def pointers(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
