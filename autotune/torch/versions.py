"""Parts of PyTorch's own that it promises to nobody, and in which its versions differ. Out: each
of them, or None (0, nothing) where the PyTorch that is installed lacks it; whoever asks has a
longer way then.

All that torch 2.10 to 2.15 need differently here is in this file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch

Empty = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
"""Makes a tensor of a shape, strides and a type."""
_GUARDS: Any = getattr(torch._C._dynamo, "guards", None)
STORAGE_USES: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many tensors lie in some memory, and objects of Python that stand for it."""
TENSOR_GUARDS: Any = getattr(_GUARDS, "TensorGuards", None)
"""What Dynamo's guards look at the forms of several tensors by."""


def data_pointer_function() -> int:
    """The address of the function that gives a tensor's memory to C++ code that Inductor writes;
    or 0."""
    return int(getattr(_GUARDS, "_torchinductor_pyobject_tensor_data_ptr", 0))


def empty_maker() -> Empty:
    """What makes tensors: Inductor's own short way where there is one."""
    quick: Empty | None = getattr(_GUARDS, "_empty_strided_cpu", None)
    if quick is not None:
        return quick
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)


def held_weights() -> Sequence[Any]:
    """The parameters and buffers of the module that is being traced, which are no inputs of its
    own: Dynamo leaves them there where Inductor is told to freeze."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return () if context is None else getattr(context, "params_flat", None) or ()


def is_weight(tensor: torch.Tensor) -> bool:
    """Whether Dynamo knows a tensor as a parameter or a buffer of a module."""
    return isinstance(tensor, torch.nn.Parameter) or bool(
        getattr(tensor, "_dynamo_static_input_type", None)
    )


def saves_functions() -> bool:
    """Whether PyTorch wants functions of a backend that it can write to a file."""
    from torch._functorch import config

    asked = getattr(config, "force_autograd_cache", False)
    return bool(asked and importlib.util.find_spec("torch._dynamo.aot_compile_types"))
