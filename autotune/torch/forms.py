"""Forms of tensors: what a program was compiled for. In: forms, and at a call tensors. Out: yes or
no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from autotune.torch.versions import TENSOR_GUARDS

Form = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""A tensor's type, shape and strides."""


def have_forms(tensors: Sequence[Any], forms: Sequence[Form]) -> bool:
    """Whether each tensor has its form, and its numbers are as they lie in memory."""
    for tensor, (dtype, shape, strides) in zip(tensors, forms, strict=True):
        if (
            not isinstance(tensor, torch.Tensor)
            or isinstance(tensor, FakeTensor)
            or tensor.layout is not torch.strided
            or tensor.dtype is not dtype
            or tensor.shape != shape
            or tensor.stride() != strides
            or tensor.is_neg()
        ):
            return False
    return True


def same_forms(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function of tensors: True where they surely have the forms of these. None where there is
    no such function: where some are no tensors with memory, or this PyTorch has none.

    Looking at each of them takes longer than a small model. PyTorch has one function for all,
    which its recorder's guards are made of. It also asks for what does not matter here (modes of
    PyTorch's dispatch): what it refuses may be right."""
    if TENSOR_GUARDS is None or not tensors or not all(map(has_memory, tensors)):
        return None
    made = TENSOR_GUARDS(
        *tensors,
        dynamic_dims_sizes=[list(t.shape) for t in tensors],
        dynamic_dims_strides=[list(t.stride()) for t in tensors],
    )
    check: Callable[..., bool] = made.check
    return check


def has_memory(value: Any) -> bool:
    """Whether a value is a tensor whose numbers lie in this machine's memory, of no subclass."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.layout is torch.strided
        and value.device.type == "cpu"
    )


def without_data(values: Sequence[Any]) -> bool:
    """Whether some are tensors of no memory, of which PyTorch asks for forms alone."""
    return any(isinstance(value, FakeTensor) for value in values)


def never(*_: Any) -> bool:
    return False
