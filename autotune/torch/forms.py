"""A check that tensors have the forms that a program was compiled for. In: forms, and at a call
tensors. Out: yes or no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Form = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""A tensor's type, shape and strides."""
_MAKER: Any = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)


class FormGuard:
    """Asks for tensors of these forms, whose numbers are as they lie in memory.

    Looking at each of them takes longer than a small model. PyTorch has one function for all,
    which its recorder's guards are made of; it also asks for what does not matter here (modes of
    PyTorch's dispatch), so it is made from tensors that were looked at, and anew where it refuses
    such ones."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = forms
        self.quick: Callable[..., bool] = _never
        """Called with the tensors: True where they are surely right."""

    def all(self, tensors: Sequence[Any]) -> bool:
        """Whether each tensor has its form."""
        for tensor, (dtype, shape, strides) in zip(tensors, self._forms, strict=True):
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.layout is not torch.strided
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.stride() != strides
                or tensor.is_neg()
            ):
                return False
        if _MAKER is not None and tensors:
            sizes = [list(shape) for _, shape, _ in self._forms]
            steps = [list(strides) for *_, strides in self._forms]
            made = _MAKER(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=steps)
            self.quick = made.check
        return True


def _never(*_: Any) -> bool:
    return False
