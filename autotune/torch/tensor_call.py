"""Calls of a model on tensors by one native function, which Python calls as it calls its own.

In: a graph's inputs as they are at a call, and what is known of its weights. Out: a function that
looks at the weights, finds the tensors' memory and runs the model. Each of these steps from Python
takes longer than a small model.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autotune.codegen.base import Library
from autotune.codegen.llvm.tensor_call import NAMES, tensor_call_text
from autotune.runtime.watched import watched_address
from autotune.target import host_target
from autotune.torch.versions import data_pointer_function
from autotune.torch.watch import WeightWatch

SYMBOL = "tensor_call"
METH_FASTCALL = 0x80
_VERSION = "_version"
_PYTHON = {
    "tuple_item": "PyTuple_GetItem", "list_item": "PyList_GetItem",
    "attribute": "PyObject_GetAttr", "as_number": "PyLong_AsLongLong",
    "as_pointer": "PyLong_AsVoidPtr", "decrease": "Py_DecRef", "increase": "Py_IncRef",
    "save_thread": "PyEval_SaveThread", "restore_thread": "PyEval_RestoreThread",
    "clear": "PyErr_Clear",
}  # fmt: skip
"""CPython's name of each function that the native one calls."""
Enter = Callable[[tuple[Any, ...], list[torch.Tensor], int], bool]
"""Takes a graph's inputs, tensors for its results, and the address of a session's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCall:
    """A function, and what it looks at."""

    enter: Enter
    kept: tuple[Any, ...]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("told", ctypes.c_char_p),
    )  # fmt: skip


def tensor_call(
    tensors: Sequence[torch.Tensor], watch: WeightWatch, takes: Sequence[int], gives: int
) -> TensorCall | None:
    """What runs a model on `takes` of inputs like these, with the same weights, and gives False
    where a weight has changed; `gives`: how many results there are. Inputs must be tensors that
    have memory. None where this PyTorch or Python has no such way."""
    address, weights = data_pointer_function(), watch.taken(tensors)
    if not address or any(t.is_inference() for t in weights):
        return None
    known = _known() | {
        "address": address, "words": 0 if watch.words is None else watch.words.pointer,
        "weights": len(weights), "takes": len(takes), "gives": gives,
    }  # fmt: skip
    words = [known[name] for name in NAMES]
    for number, tensor in zip(watch.numbers, weights, strict=True):
        words += [number, id(tensor), tensor._version, tensor.data_ptr()]
    words += takes
    enter = _as_function(struct.pack(f"={len(words)}Q", *words))
    return enter and TensorCall(enter=enter, kept=(watch,))


@functools.cache
def _known() -> dict[str, int]:
    """What blocks have in common."""
    functions = {name: _address_of(getattr(ctypes.pythonapi, n)) for name, n in _PYTHON.items()}
    objects = {"true": id(True), "false": id(False), "version": id(_VERSION)}
    return functions | objects | {"enter": watched_address()}


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _as_function(block: bytes) -> Enter | None:
    """The native function with this block; None where bytes objects are others than is known."""
    offset = bytes.__basicsize__ - 1
    if sys.implementation.name != "cpython":
        return None
    if ctypes.string_at(id(block) + offset, len(block)) != block:
        return None
    make = ctypes.pythonapi.PyCMethod_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p]
    made: Enter = make(ctypes.addressof(_method(offset)), block, None, None)
    return made


@functools.cache
def _method(offset: int) -> _Method:
    """The native function as Python knows it, for good."""
    return _Method(SYMBOL.encode(), _library(offset).address(SYMBOL), METH_FASTCALL, None)


@functools.cache
def _library(offset: int) -> Library:
    from autotune.codegen.llvm.backend import load_text

    return load_text(tensor_call_text(SYMBOL, offset), host_target())
